// SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause
/*
 * Vegas keeps a few packets in the bottleneck's queue, not more (Brakmo, O'Malley, Peterson, "TCP
 * Vegas", SIGCOMM 1994). The worked example of docs/algorithms.md.
 */
#include "../reno.h"

#define CC_NAME brb_vegas
#define CC_WINDOW_BASED
#define CC_ON_RTT

CC_PARAM(vegas_alpha, 2, 1, 1000, CC_PACKETS, "the window grows with fewer packets in the queue")
CC_PARAM(vegas_beta, 4, 1, 1000, CC_PACKETS, "the window shrinks with more packets in the queue")
CC_PARAM(vegas_gamma, 1, 1, 1000, CC_PACKETS, "slow start ends with more packets in the queue")

struct control {
	u32 base_rtt_us;  /* minimum RTT ever: the path without a queue; CC_NO_RTT: none yet */
	u32 round_rtt_us; /* minimum RTT of this round */
	u32 round_end;	  /* sequence number whose acknowledgement ends it */
};

static void control_init(struct cc_connection *conn, struct control *control)
{
	control->base_rtt_us = CC_NO_RTT;
	control->round_rtt_us = CC_NO_RTT;
	control->round_end = conn->snd_nxt;
}

static void control_on_rtt(struct cc_connection *conn CC_UNUSED, u32 rtt_us,
			   struct control *control)
{
	rtt_us = cc_max(rtt_us, 1);
	control->base_rtt_us = cc_min(control->base_rtt_us, rtt_us);
	control->round_rtt_us = cc_min(control->round_rtt_us, rtt_us);
}

/* The path holds a part of the window at its base RTT; return the rest, which waits in a queue. */
static u32 vegas_queued(const struct cc_connection *conn, const struct control *control)
{
	u32 waited_us = control->round_rtt_us - control->base_rtt_us;

	return (u32)((u64)conn->cwnd * waited_us / control->round_rtt_us);
}

/* Shrink the window, and ssthresh with it, so that it does not grow back in slow start. */
static void vegas_shrink(struct cc_connection *conn, u32 packets)
{
	conn->cwnd = cc_max(conn->cwnd - cc_min(packets, conn->cwnd), RENO_MIN_SSTHRESH);
	conn->ssthresh = cc_min(conn->ssthresh, conn->cwnd);
}

/* Called once per round: section 3.2, and 3.3 for slow start. */
static void vegas_adjust(struct cc_connection *conn, const struct control *control)
{
	u32 queued = vegas_queued(conn, control);

	if (cc_in_slow_start(conn)) {
		if (queued > vegas_gamma)
			vegas_shrink(conn, queued);
	} else if (queued < vegas_alpha) {
		if (conn->is_cwnd_limited)
			conn->cwnd = cc_min(conn->cwnd + 1, conn->cwnd_clamp);
	} else if (queued > vegas_beta) {
		vegas_shrink(conn, 1);
	}
}

static void control_on_acked(struct cc_connection *conn, u32 acked, struct control *control)
{
	if (cc_in_slow_start(conn) && conn->is_cwnd_limited)
		window_slow_start(conn, acked);
	if (!cc_after(conn->snd_una, control->round_end))
		return;
	if (control->round_rtt_us != CC_NO_RTT)
		vegas_adjust(conn, control);
	control->round_end = conn->snd_nxt;
	control->round_rtt_us = CC_NO_RTT;
}

static u32 control_ssthresh(struct cc_connection *conn, struct control *control CC_UNUSED)
{
	return reno_ssthresh(conn);
}

static u32 control_undo_cwnd(struct cc_connection *conn, struct control *control CC_UNUSED)
{
	return window_undo(conn);
}

static void control_report(const struct cc_connection *conn, const struct control *control,
			   struct cc_report *report)
{
	report->mode = cc_in_slow_start(conn) ? CC_MODE_SLOW_START : CC_MODE_AVOIDANCE;
	report->min_rtt_us = control->base_rtt_us;
}

#include "control.h"
