/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* BBR version 3: whether bandwidth still grows (section 5.3.1.2). It ends STARTUP and
 * PROBE_BW_UP. */
#ifndef BROBUST_CC_BBR3_FULL_PIPE_H
#define BROBUST_CC_BBR3_FULL_PIPE_H

#include "values.h"

/* ResetFullBW, and the bandwidth that growth is measured against. */
CC_INLINE void bbr3_reset_full_bw(struct bbr3 *bbr, u32 bw)
{
	bbr->full_bw = bw;
	bbr->full_bw_rounds = 0;
	bbr->full_bw_now = false;
}

/*
 * CheckFullBWReached: three rounds in which bandwidth grew by less than a quarter. Deviation, as in
 * google's code: growth counts at every ACK; the draft looks at the first ACK of a round only
 * (bbr3_growth_each_ack). Version 2 looks then, too, but at the maximum instead of that ACK's
 * sample, and only until the pipe was full once.
 */
static void bbr3_check_full_bw(const struct cc_sample *sample, const struct bbr3_ack *ack,
			       struct bbr3 *bbr)
{
	u32 bw = BBR3_IS_VERSION_2 ? bbr3_max_bw(bbr) : ack->bw;

	if (bbr->full_bw_now || sample->is_app_limited)
		return;
	if (BBR3_IS_VERSION_2 && bbr->full_bw_reached)
		return;
	if (!bbr3_growth_each_ack && !bbr->round_start)
		return;
	if (bw >= (u32)((u64)bbr->full_bw * bbr3_full_bw_growth >> BBR_SCALE)) {
		bbr3_reset_full_bw(bbr, bw);
		return;
	}
	if (!bbr->round_start)
		return;
	bbr->full_bw_rounds++;
	bbr->full_bw_now = bbr->full_bw_rounds >= bbr3_full_bw_rounds;
	bbr->full_bw_reached |= bbr->full_bw_now;
}

#endif
