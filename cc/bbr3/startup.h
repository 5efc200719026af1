/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/*
 * BBR version 3: the end of STARTUP by losses (section 5.3.1.3). full_pipe.h ends it by a plateau
 * of bandwidth.
 */
#ifndef BROBUST_CC_BBR3_STARTUP_H
#define BROBUST_CC_BBR3_STARTUP_H

#include "probe_bw.h"

/*
 * CheckStartupHighLoss: a round of recovery with many losses. Deviations, as in google's code: the
 * losses of an ACK count as one, where the draft counts ranges of sequence numbers; and it is
 * enough to be in recovery when the round ends. Version 2 sets inflight_hi to the BDP alone.
 */
static void bbr3_check_startup_losses(const struct cc_connection *conn,
				      const struct cc_sample *sample, const struct bbr3_ack *ack,
				      struct bbr3 *bbr)
{
	if (bbr->full_bw_reached)
		return;
	if (sample->losses > 0 && bbr->loss_events < 15)
		bbr->loss_events++;
	if (!bbr->loss_round_start)
		return;
	if (bbr3_startup_losses && conn->ca_state == CC_CA_RECOVERY &&
	    bbr->loss_events >= bbr3_startup_losses && bbr3_is_inflight_too_high(ack)) {
		bbr->full_bw_reached = true;
		bbr->inflight_hi = bbr3_inflight(conn, bbr, bbr3_max_bw(bbr), BBR_UNIT);
		if (!BBR3_IS_VERSION_2)
			bbr->inflight_hi = cc_max(bbr->inflight_hi, bbr->inflight_latest);
	}
	bbr->loss_events = 0;
}

#endif
