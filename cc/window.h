/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* What controls that only move the window share, rounded as in the kernel (net/ipv4/tcp_cong.c). */
#ifndef BROBUST_CC_WINDOW_H
#define BROBUST_CC_WINDOW_H

#include "cc.h"

/* Slow start: one packet more for each acknowledged. Returns the packets left over at ssthresh. */
CC_INLINE u32 window_slow_start(struct cc_connection *conn, u32 acked)
{
	u32 cwnd = cc_min(conn->cwnd + acked, conn->ssthresh);

	acked -= cwnd - conn->cwnd;
	conn->cwnd = cc_min(cwnd, conn->cwnd_clamp);
	return acked;
}

/* One packet more for every "per_packet" acknowledged. */
CC_INLINE void window_grow(struct cc_connection *conn, u32 per_packet, u32 acked)
{
	/* Credit gathered while steps were dearer: one step only, lest cwnd jumps. */
	if (conn->cwnd_count >= per_packet) {
		conn->cwnd_count = 0;
		conn->cwnd++;
	}
	conn->cwnd_count += acked;
	if (conn->cwnd_count >= per_packet) {
		u32 steps = conn->cwnd_count / per_packet;

		conn->cwnd_count -= steps * per_packet;
		conn->cwnd += steps;
	}
	conn->cwnd = cc_min(conn->cwnd, conn->cwnd_clamp);
}

/* The window before the loss that was none (tcp_reno_undo_cwnd). */
CC_INLINE u32 window_undo(const struct cc_connection *conn)
{
	return cc_max(conn->cwnd, conn->prior_cwnd);
}

#endif
