/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/*
 * A socket as struct cc_connection of cc/cc.h, and a rate sample as its struct cc_sample.
 *
 * The names are the kernel's. For a module they come from its headers, for BPF from bpf/tcp.h. What
 * the two reach in different ways stands in the kernel.h of each host: ca_state_of(),
 * cwnd_was_full(), load_losses(), may_write_app_limited and ask_for_pacing().
 */
#ifndef BROBUST_SNAPSHOT_H
#define BROBUST_SNAPSHOT_H

#include "../cc.h"
#include "kernel.h"

CC_INLINE void load_connection(struct sock *sk, struct cc_connection *conn)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	s32 receiver_room = (s32)(tcp_wnd_end(tp) - tp->snd_nxt);

	conn->now_us = tp->tcp_mstamp;
	conn->delivered_us = tp->delivered_mstamp;
	conn->clock_ns = tp->tcp_clock_cache;
	conn->departure_ns = tp->tcp_wstamp_ns;
	conn->max_pacing_rate = READ_ONCE(sk->sk_max_pacing_rate);
	conn->now_ticks = tcp_jiffies32;
	conn->tick_hz = HZ;
	conn->last_sent_ticks = tp->lsndtime;
	conn->delivered = tp->delivered;
	conn->lost = tp->lost;
	conn->in_flight = tcp_packets_in_flight(tp);
	conn->unsent_bytes = tp->write_seq - tp->snd_nxt;
	conn->mss = tp->mss_cache;
	conn->srtt_us_8 = tp->srtt_us;
	conn->min_rtt_us = tcp_min_rtt(tp);
	conn->snd_una = tp->snd_una;
	conn->snd_nxt = tp->snd_nxt;
	conn->receiver_room = receiver_room < 0 ? 0 : (u32)receiver_room;
	conn->cwnd_clamp = tp->snd_cwnd_clamp;
	conn->prior_cwnd = tp->prior_cwnd;
	conn->gso_max_size = sk->sk_gso_max_size;
	conn->tso_max_bytes = GSO_LEGACY_MAX_SIZE - 1 - MAX_TCP_HEADER;
	conn->gso_limit = GSO_LIMIT;
	conn->pacing_shift = READ_ONCE(sk->sk_pacing_shift);
	conn->ca_state = ca_state_of(sk);
	conn->is_cwnd_limited = tcp_is_cwnd_limited(sk);
	conn->is_paced = sk->sk_pacing_status != SK_PACING_NONE;
#ifndef CC_WINDOW_BASED
	conn->cwnd_was_full = cwnd_was_full(tp);
#endif
	conn->wants_pacing = 0;
	conn->pacing_stride = 0;
	conn->random_draws = 0;
	conn->pacing_rate = READ_ONCE(sk->sk_pacing_rate);
	conn->cwnd = tcp_snd_cwnd(tp);
	conn->cwnd_count = tp->snd_cwnd_cnt;
	conn->ssthresh = tp->snd_ssthresh;
	conn->app_limited = tp->app_limited;
}

/* Write back what a control may change, and the rate only where the control sets one. */
CC_INLINE void store_connection(struct sock *sk, const struct cc_connection *conn)
{
	struct tcp_sock *tp = tcp_sk(sk);

	tcp_snd_cwnd_set(tp, conn->cwnd);
	tp->snd_cwnd_cnt = conn->cwnd_count;
	tp->snd_ssthresh = conn->ssthresh;
	if (may_write_app_limited)
		tp->app_limited = conn->app_limited;
#if !defined(CC_WINDOW_BASED) || defined(CC_ON_SEND)
	WRITE_ONCE(sk->sk_pacing_rate, conn->pacing_rate);
#endif
	ask_for_pacing(sk, conn);
}

CC_INLINE void load_sample(const struct rate_sample *rs, struct cc_sample *sample)
{
	__builtin_memset(sample, 0, sizeof(*sample)); /* its padding is recorded too */
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
	load_losses(rs, sample);
}

#endif
