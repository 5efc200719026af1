/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* BBR version 3: the minimum RTT and PROBE_RTT (section 5.3.4.3 where no other is named). */
#ifndef BROBUST_CC_BBR3_PROBE_RTT_H
#define BROBUST_CC_BBR3_PROBE_RTT_H

#include "probe_bw.h"

/* ProbeRTTCwnd, section 5.6.4.5. */
CC_INLINE u32 bbr3_probe_rtt_cwnd(const struct bbr3 *bbr)
{
	return cc_max(bbr3_bdp(bbr, bbr3_bw(bbr), bbr3_probe_rtt_cwnd_gain), bbr3_min_cwnd);
}

/* SaveCwnd, section 5.6.4.4. */
static void bbr3_save_cwnd(const struct cc_connection *conn, struct bbr3 *bbr)
{
	bool cut = bbr->prev_ca_state >= CC_CA_RECOVERY || bbr->mode == CC_MODE_PROBE_RTT;

	bbr->prior_cwnd = cut ? cc_max(bbr->prior_cwnd, conn->cwnd) : conn->cwnd;
}

/*
 * CheckProbeRTTDone and ExitProbeRTT, section 5.3.4.4: less than the BDP is in flight, so there is
 * nothing to drain: cruise, and probe when it is time.
 */
static void bbr3_leave_probe_rtt(struct cc_connection *conn, struct bbr3 *bbr)
{
	if (!bbr->probe_rtt_ticks || !cc_after(conn->now_ticks, bbr->probe_rtt_ticks))
		return;
	bbr->probe_rtt_min_ticks = conn->now_ticks;
	conn->cwnd = cc_max(conn->cwnd, bbr->prior_cwnd);
	bbr3_reset_lower_bounds(bbr);
	if (bbr->full_bw_reached) {
		bbr3_start_down(conn, bbr);
		bbr3_start_cruise(bbr);
	} else {
		bbr->mode = CC_MODE_STARTUP;
	}
}

/* HandleProbeRTT. */
static void bbr3_hold_probe_rtt(struct cc_connection *conn, struct bbr3 *bbr)
{
	/* MarkConnectionAppLimited: these samples show our rate, not the path's. */
	conn->app_limited = conn->delivered + conn->in_flight;
	if (!conn->app_limited)
		conn->app_limited = 1;
	if (!bbr->probe_rtt_ticks && conn->in_flight <= bbr3_probe_rtt_cwnd(bbr)) {
		bbr->probe_rtt_ticks = conn->now_ticks + cc_ms_to_ticks(conn, bbr3_probe_rtt);
		bbr->probe_rtt_round_done = false;
		bbr->round_delivered = conn->delivered;
	} else if (bbr->probe_rtt_ticks) {
		bbr->probe_rtt_round_done |= bbr->round_start;
		if (bbr->probe_rtt_round_done)
			bbr3_leave_probe_rtt(conn, bbr);
	}
}

/*
 * UpdateMinRTT and CheckProbeRTT. Deviation, as in google's code: an ACK that the receiver delayed
 * does not refresh an expired minimum. In version 2 a sample equal to the minimum refreshes it.
 */
static void bbr3_update_min_rtt(struct cc_connection *conn, const struct cc_sample *sample,
				struct bbr3 *bbr)
{
	u32 now = conn->now_ticks;
	bool due =
	    cc_after(now, bbr->probe_rtt_min_ticks + cc_ms_to_ticks(conn, bbr3_probe_rtt_interval));
	bool expired;

	if (sample->rtt_us >= 0 &&
	    (sample->rtt_us < (s64)bbr->probe_rtt_min_us + BBR3_IS_VERSION_2 ||
	     (due && !sample->is_ack_delayed))) {
		bbr->probe_rtt_min_us = (u32)sample->rtt_us;
		bbr->probe_rtt_min_ticks = now;
	}
	expired = cc_after(now, bbr->min_rtt_ticks + bbr3_min_rtt_window * conn->tick_hz);
	if (bbr->probe_rtt_min_us <= bbr->min_rtt_us || expired) {
		bbr->min_rtt_us = bbr->probe_rtt_min_us;
		bbr->min_rtt_ticks = bbr->probe_rtt_min_ticks;
	}
	if (bbr3_probe_rtt && due && !bbr->idle_restart && bbr->mode != CC_MODE_PROBE_RTT) {
		bbr->mode = CC_MODE_PROBE_RTT; /* which makes that the larger window is saved */
		bbr3_save_cwnd(conn, bbr);
		bbr->probe_rtt_ticks = 0;
		bbr->ack_phase = BBR3_ACKS_PROBE_STOPPING;
		bbr->round_delivered = conn->delivered;
	}
	if (bbr->mode == CC_MODE_PROBE_RTT)
		bbr3_hold_probe_rtt(conn, bbr);
	if (sample->delivered > 0)
		bbr->idle_restart = false;
}

#endif
