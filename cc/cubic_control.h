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
