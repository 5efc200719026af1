/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/*
 * Reno: slow start and congestion avoidance of RFC 5681, sections 3.1 and 3.2, and halving once per
 * window with losses as in RFC 6582. The stack does loss detection and recovery.
 */
#ifndef BROBUST_CC_RENO_H
#define BROBUST_CC_RENO_H

#include "window.h"

/* RFC 5681, equation (4), with cwnd for the flight size as Linux does. */
#define RENO_MIN_SSTHRESH 2U

CC_INLINE void reno_on_acked(struct cc_connection *conn, u32 acked)
{
	if (!conn->is_cwnd_limited)
		return; /* RFC 7661: a window that is not used does not show what the path holds */
	if (cc_in_slow_start(conn)) {
		acked = window_slow_start(conn, acked);
		if (!acked)
			return;
	}
	window_grow(conn, conn->cwnd, acked);
}

CC_INLINE u32 reno_ssthresh(const struct cc_connection *conn)
{
	return cc_max(conn->cwnd / 2, RENO_MIN_SSTHRESH);
}

#endif
