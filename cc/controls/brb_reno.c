// SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause
/* Reno, to compare with the kernel's: cc/reno.h. */
#include "../reno.h"

#define CC_NAME brb_reno
#define CC_WINDOW_BASED

struct control {
	u32 unused; /* Reno keeps everything in the connection */
};

static void control_init(struct cc_connection *conn CC_UNUSED, struct control *control CC_UNUSED)
{
}

static void control_on_acked(struct cc_connection *conn, u32 acked,
			     struct control *control CC_UNUSED)
{
	reno_on_acked(conn, acked);
}

static u32 control_ssthresh(struct cc_connection *conn, struct control *control CC_UNUSED)
{
	return reno_ssthresh(conn);
}

static u32 control_undo_cwnd(struct cc_connection *conn, struct control *control CC_UNUSED)
{
	return window_undo(conn);
}

static void control_report(const struct cc_connection *conn,
			   const struct control *control CC_UNUSED, struct cc_report *report)
{
	report->mode = cc_in_slow_start(conn) ? CC_MODE_SLOW_START : CC_MODE_AVOIDANCE;
	report->min_rtt_us = conn->min_rtt_us;
}

#include "control.h"
