/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* A control that is CUBIC (cc.h tells what a control is). */
#include "cubic.h"

#define CC_WINDOW_BASED
#define CC_ON_RTT
#define CC_SET_STATE
#define CC_ON_EVENT

struct control {
	struct cubic cubic;
};

#ifdef CUBIC_WANTS_PACING
#define CC_ON_SEND
/* "Are Mobiles Ready for BBR?", section 5.2.2. */
CC_PARAM(cubic_rate, 0, 0, 4000000000U, CC_BITS_PER_SECOND, "fixed pacing rate; 0: the stack's")

/* The stack sets its own rate again at each ACK. */
static void control_on_send(struct cc_connection *conn, struct control *control CC_UNUSED)
{
	if (cubic_rate)
		conn->pacing_rate = cc_min64(cubic_rate / 8, conn->max_pacing_rate);
}

/* The stack's own value for a control that has no say (net.ipv4.tcp_min_tso_segs). */
static u32 control_min_tso_segs(u64 pacing_rate CC_UNUSED)
{
	return 2;
}
#endif

static void control_init(struct cc_connection *conn, struct control *control)
{
#ifdef CUBIC_WANTS_PACING
	conn->wants_pacing = 1;
#endif
	cubic_init(conn, &control->cubic);
}

static void control_on_rtt(struct cc_connection *conn, u32 rtt_us, struct control *control)
{
	cubic_on_rtt(conn, rtt_us, &control->cubic);
}

static void control_on_acked(struct cc_connection *conn, u32 acked, struct control *control)
{
	cubic_on_acked(conn, acked, &control->cubic);
}

static void control_set_state(struct cc_connection *conn, u8 state, struct control *control)
{
	cubic_set_state(conn, state, &control->cubic);
}

static void control_on_event(struct cc_connection *conn, u32 event, struct control *control)
{
	cubic_on_event(conn, event, &control->cubic);
}

static u32 control_ssthresh(struct cc_connection *conn, struct control *control)
{
	return cubic_ssthresh(conn, &control->cubic);
}

static u32 control_undo_cwnd(struct cc_connection *conn, struct control *control CC_UNUSED)
{
	return window_undo(conn);
}

static void control_report(const struct cc_connection *conn, const struct control *control,
			   struct cc_report *report)
{
	report->mode = cc_in_slow_start(conn) ? CC_MODE_SLOW_START : CC_MODE_AVOIDANCE;
	report->min_rtt_us = control->cubic.min_rtt_us ? control->cubic.min_rtt_us : CC_NO_RTT;
}
