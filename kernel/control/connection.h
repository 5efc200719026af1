/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* A socket as cc/cc.h's struct cc_connection, and a rate sample as its struct cc_sample. */
#ifndef BROBUST_CONNECTION_H
#define BROBUST_CONNECTION_H

#include <net/tcp.h>

#include "cc/cc.h"

static inline void load_connection(struct sock *sk, struct cc_connection *conn)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	*conn = (struct cc_connection){
	    .now_us = tp->tcp_mstamp,
	    .delivered_us = tp->delivered_mstamp,
	    .clock_ns = tp->tcp_clock_cache,
	    .departure_ns = tp->tcp_wstamp_ns,
	    .max_pacing_rate = READ_ONCE(sk->sk_max_pacing_rate),
	    .now_ticks = tcp_jiffies32,
	    .tick_hz = HZ,
	    .last_sent_ticks = tp->lsndtime,
	    .delivered = tp->delivered,
	    .lost = tp->lost,
	    .in_flight = tcp_packets_in_flight(tp),
	    .unsent_bytes = tp->write_seq - tp->snd_nxt,
	    .mss = tp->mss_cache,
	    .srtt_us_8 = tp->srtt_us,
	    .min_rtt_us = tcp_min_rtt(tp),
	    .snd_una = tp->snd_una,
	    .snd_nxt = tp->snd_nxt,
	    .receiver_room = max((s32)(tcp_wnd_end(tp) - tp->snd_nxt), 0),
	    .cwnd_clamp = tp->snd_cwnd_clamp,
	    .prior_cwnd = tp->prior_cwnd,
	    .gso_max_size = sk->sk_gso_max_size,
	    .tso_max_bytes = GSO_LEGACY_MAX_SIZE - 1 - MAX_TCP_HEADER,
	    .pacing_shift = READ_ONCE(sk->sk_pacing_shift),
	    .ca_state = inet_csk(sk)->icsk_ca_state,
	    .is_cwnd_limited = tcp_is_cwnd_limited(sk),
	    .is_paced = sk->sk_pacing_status != SK_PACING_NONE,
	    .pacing_rate = READ_ONCE(sk->sk_pacing_rate),
	    .cwnd = tcp_snd_cwnd(tp),
	    .cwnd_count = tp->snd_cwnd_cnt,
	    .ssthresh = tp->snd_ssthresh,
	    .app_limited = tp->app_limited,
	};
}

static inline void store_connection(struct sock *sk, const struct cc_connection *conn)
{
	struct tcp_sock *tp = tcp_sk(sk);

	tcp_snd_cwnd_set(tp, conn->cwnd);
	tp->snd_cwnd_cnt = conn->cwnd_count;
	tp->snd_ssthresh = conn->ssthresh;
	tp->app_limited = conn->app_limited;
#if !defined(CC_WINDOW_BASED) || defined(CC_ON_SEND)
	WRITE_ONCE(sk->sk_pacing_rate, conn->pacing_rate);
#endif
#ifdef BROBUST_PACING_STRIDE
	if (conn->pacing_stride)
		inet_csk(sk)->icsk_pacing_stride = conn->pacing_stride;
#endif
	if (conn->wants_pacing)
		cmpxchg(&sk->sk_pacing_status, SK_PACING_NONE, SK_PACING_NEEDED);
}

static inline struct cc_sample sample_of(const struct rate_sample *rs)
{
	return (struct cc_sample){
	    .interval_us = rs->interval_us,
	    .rtt_us = rs->rtt_us,
	    .prior_delivered = rs->prior_delivered,
	    .delivered = rs->delivered,
	    .losses = rs->losses,
	    .acked_sacked = rs->acked_sacked,
	    .prior_in_flight = rs->prior_in_flight,
	    .is_app_limited = rs->is_app_limited,
	    .is_retrans = rs->is_retrans,
	    .is_ack_delayed = rs->is_ack_delayed,
	};
}

#endif
