/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/*
 * BBR version 3: the short-term model (section 5.5.10.3). What a round delivered, and the lower
 * bounds bw_lo and inflight_lo that losses cut while BBR does not probe.
 */
#ifndef BROBUST_CC_BBR3_SHORT_TERM_H
#define BROBUST_CC_BBR3_SHORT_TERM_H

#include "losses.h"

/* ResetShortTermModel. */
CC_INLINE void bbr3_reset_lower_bounds(struct bbr3 *bbr)
{
	bbr->bw_lo = BBR3_UNSET;
	bbr->inflight_lo = BBR3_UNSET;
}

/* ResetCongestionSignals. */
CC_INLINE void bbr3_reset_congestion_signals(struct bbr3 *bbr)
{
	bbr->loss_in_round = false;
	bbr->bw_latest = 0;
	bbr->inflight_latest = 0;
}

/*
 * AdaptLowerBoundsFromCongestion: once in a round with losses, unless they come from a probe.
 * Deviation, as in google's code: bw_lo is at least 1.
 */
static void bbr3_adapt_lower_bounds(const struct cc_connection *conn, struct bbr3 *bbr)
{
	u32 keep = BBR_UNIT - bbr3_beta;

	if (bbr3_is_probing(bbr) || !bbr->loss_in_round)
		return;
	if (bbr->bw_lo == BBR3_UNSET)
		bbr->bw_lo = bbr3_max_bw(bbr);
	if (bbr->inflight_lo == BBR3_UNSET)
		bbr->inflight_lo = conn->cwnd;
	/* Never below what was delivered in this round: the path does carry that much. */
	bbr->bw_lo = cc_max(bbr->bw_latest, (u32)((u64)bbr->bw_lo * keep >> BBR_SCALE));
	if (!BBR3_IS_VERSION_2)
		bbr->bw_lo = cc_max(bbr->bw_lo, 1);
	bbr->inflight_lo =
	    cc_max(bbr->inflight_latest, (u32)((u64)bbr->inflight_lo * keep >> BBR_SCALE));
}

/* UpdateLatestDeliverySignals. */
static void bbr3_update_latest(const struct cc_connection *conn, const struct cc_sample *sample,
			       const struct bbr3_ack *ack, struct bbr3 *bbr)
{
	bbr->loss_round_start = false;
	if (!bbr3_has_sample(sample))
		return;
	bbr->bw_latest = cc_max(bbr->bw_latest, ack->bw);
	bbr->inflight_latest = cc_max(bbr->inflight_latest, (u32)sample->delivered);
	if (!cc_after(bbr->loss_round_delivered, sample->prior_delivered)) {
		bbr->loss_round_delivered = conn->delivered;
		bbr->loss_round_start = true;
	}
}

/*
 * AdvanceLatestDeliverySignals: the next round begins with this sample. Deviation, as in google's
 * code: it does not while it is not known whether a tail loss probe has repaired a loss, since then
 * what the path delivered before counts.
 */
static void bbr3_advance_latest(const struct cc_sample *sample, const struct bbr3_ack *ack,
				struct bbr3 *bbr)
{
	if (!bbr->loss_round_start || (sample->is_acking_probe && bbr3_stack_signals))
		return;
	bbr->bw_latest = ack->bw;
	bbr->inflight_latest = (u32)sample->delivered;
}

/* UpdateCongestionSignals, with UpdateMaxBw of section 5.5.5. */
static void bbr3_update_congestion_signals(const struct cc_connection *conn,
					   const struct cc_sample *sample,
					   const struct bbr3_ack *ack, struct bbr3 *bbr)
{
	if (!bbr3_has_sample(sample))
		return;
	if (!sample->is_app_limited || ack->bw >= bbr3_max_bw(bbr))
		bbr->bw_hi[1] = cc_max(bbr->bw_hi[1], ack->bw);
	bbr->loss_in_round |= sample->losses > 0;
	if (!bbr->loss_round_start)
		return;
	bbr3_adapt_lower_bounds(conn, bbr);
	bbr->loss_in_round = false;
}

#endif
