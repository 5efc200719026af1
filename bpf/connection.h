/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* A socket as cc/cc.h's struct cc_connection, and a rate sample as its struct cc_sample. */
#ifndef BROBUST_CONNECTION_H
#define BROBUST_CONNECTION_H

#include "../cc/cc.h"

/* Set by the loader before the program is verified. */
const volatile u32 tick_hz = 250;

/* GSO_LEGACY_MAX_SIZE - 1 - MAX_TCP_HEADER, of a kernel with tunnels and wireless devices. */
#define TSO_MAX_BYTES (65536 - 1 - 320)

static __always_inline void load_connection(struct sock *sk, struct cc_connection *conn)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	const struct inet_connection_sock *icsk = (void *)sk;
	u32 cwnd = tp->snd_cwnd;

	conn->now_us = tp->tcp_mstamp;
	conn->delivered_us = tp->delivered_mstamp;
	conn->clock_ns = tp->tcp_clock_cache;
	conn->departure_ns = tp->tcp_wstamp_ns;
	conn->max_pacing_rate = sk->sk_max_pacing_rate;
	conn->now_ticks = (u32)bpf_jiffies64();
	conn->tick_hz = tick_hz;
	conn->last_sent_ticks = tp->lsndtime;
	conn->delivered = tp->delivered;
	conn->lost = tp->lost;
	conn->in_flight = tcp_packets_in_flight(tp);
	conn->unsent_bytes = tp->write_seq - tp->snd_nxt;
	conn->mss = tp->mss_cache;
	conn->srtt_us_8 = tp->srtt_us;
	conn->min_rtt_us = tp->rtt_min.s[0].v;
	conn->snd_una = tp->snd_una;
	conn->snd_nxt = tp->snd_nxt;
	conn->receiver_room = tcp_receiver_room(tp);
	conn->cwnd_clamp = tp->snd_cwnd_clamp;
	conn->prior_cwnd = tp->prior_cwnd;
	conn->gso_max_size = sk->sk_gso_max_size;
	conn->tso_max_bytes = TSO_MAX_BYTES;
	conn->pacing_shift = sk->sk_pacing_shift;
	conn->ca_state = BPF_CORE_READ_BITFIELD(icsk, icsk_ca_state);
	/* tcp_is_cwnd_limited() */
	conn->is_cwnd_limited = BPF_CORE_READ_BITFIELD(tp, is_cwnd_limited) ||
				(cwnd < tp->snd_ssthresh && cwnd < 2 * tp->max_packets_out);
	conn->is_paced = sk->sk_pacing_status != SK_PACING_NONE;
	conn->wants_pacing = 0;
	conn->pacing_stride = 0;
	conn->random_draws = 0;
	conn->pacing_rate = sk->sk_pacing_rate;
	conn->cwnd = cwnd;
	conn->cwnd_count = tp->snd_cwnd_cnt;
	conn->ssthresh = tp->snd_ssthresh;
	conn->app_limited = tp->app_limited;
}

static __always_inline void load_sample(const struct rate_sample *rs, struct cc_sample *sample)
{
	sample->interval_us = rs->interval_us;
	sample->rtt_us = rs->rtt_us;
	sample->prior_delivered = rs->prior_delivered;
	sample->delivered = rs->delivered;
	sample->losses = rs->losses;
	sample->acked_sacked = rs->acked_sacked;
	sample->prior_in_flight = rs->prior_in_flight;
	sample->is_app_limited = rs->is_app_limited;
	sample->is_retrans = rs->is_retrans;
	sample->is_ack_delayed = rs->is_ack_delayed;
}

#endif
