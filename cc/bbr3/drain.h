/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* BBR version 3: DRAIN (section 5.3.2), which empties the queue that STARTUP has built. */
#ifndef BROBUST_CC_BBR3_DRAIN_H
#define BROBUST_CC_BBR3_DRAIN_H

#include "probe_bw.h"

/*
 * EnterDrain and CheckDrainDone. Deviations, as in google's code: the pacing gain is 0.34 instead
 * of 0.5, and there is no limit of three rounds; brb_bbr3_draft has the draft's values.
 */
static void bbr3_check_drain(struct cc_connection *conn, struct bbr3 *bbr)
{
	u32 bdp;

	if (bbr->mode != CC_MODE_DRAIN && (bbr->mode != CC_MODE_STARTUP || !bbr->full_bw_reached))
		return;
	bdp = bbr3_inflight(conn, bbr, bbr3_max_bw(bbr), BBR_UNIT);
	if (bbr->mode == CC_MODE_STARTUP) {
		bbr->mode = CC_MODE_DRAIN;
		bbr->drain_rounds = 0;
		conn->ssthresh = bdp; /* shown to users, not used */
		bbr3_reset_congestion_signals(bbr);
	} else if (bbr->round_start) {
		bbr->drain_rounds = (u8)cc_min(bbr->drain_rounds + 1, 255);
	}
	if (bbr3_at_departure(conn, bbr, conn->in_flight) <= bdp ||
	    (bbr3_drain_rounds && bbr->drain_rounds >= bbr3_drain_rounds))
		bbr3_start_down(conn, bbr);
}

#endif
