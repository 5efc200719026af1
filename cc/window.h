/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* What window-based controls share, rounded as in the kernel (net/ipv4/tcp_cong.c). */
#ifndef BROBUST_CC_WINDOW_H
#define BROBUST_CC_WINDOW_H

#include "cc.h"

/* Slow start: grow by one packet for each acknowledged one. Return those left over at ssthresh. */
CC_INLINE u32 window_slow_start(struct cc_connection *conn, u32 acked)
{
	u32 cwnd = cc_min(conn->cwnd + acked, conn->ssthresh);

	acked -= cwnd - conn->cwnd;
	conn->cwnd = cc_min(cwnd, conn->cwnd_clamp);
	return acked;
}

/* Grow by one packet for every "per_packet" acknowledged ones. */
CC_INLINE void window_grow(struct cc_connection *conn, u32 per_packet, u32 acked)
{
	/* Credit from a time when steps cost more gives one step only, so that cwnd does not
	 * jump. */
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

/* Return the window before a loss that turned out to be none (tcp_reno_undo_cwnd). */
CC_INLINE u32 window_undo(const struct cc_connection *conn)
{
	return cc_max(conn->cwnd, conn->prior_cwnd);
}

#endif
