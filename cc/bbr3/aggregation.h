/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/*
 * BBR version 3: aggregation of ACKs (section 5.5.9). ACKs that come in bunches leave gaps in which
 * cwnd would run out, so cwnd is larger by what was acknowledged beyond bandwidth times time.
 */
#ifndef BROBUST_CC_BBR3_AGGREGATION_H
#define BROBUST_CC_BBR3_AGGREGATION_H

#include "values.h"

/*
 * UpdateACKAggregation. Deviations, as in google's code: the window of ten rounds is kept as two
 * halves, and an interval ends after 2^20 packets.
 */
static void bbr3_update_aggregation(const struct cc_connection *conn,
				    const struct cc_sample *sample, struct bbr3 *bbr)
{
	u32 half = bbr->extra_acked_half & 1;
	u32 expected, extra;

	if (!bbr3_extra_acked_gain || !bbr3_has_sample(sample))
		return;
	if (bbr->round_start) {
		bbr->extra_acked_age = (u8)cc_min(bbr->extra_acked_age + 1, 31);
		/* In STARTUP aggregation changes too fast for a longer window. */
		if (bbr->extra_acked_age >= (bbr->full_bw_reached ? bbr3_extra_acked_rounds : 1)) {
			half ^= 1;
			bbr->extra_acked_age = 0;
			bbr->extra_acked_half = (u8)half;
			bbr->extra_acked[half] = 0;
		}
	}
	expected = (u32)((u64)bbr3_bw(bbr) * cc_us_since(conn->delivered_us, bbr->aggregation_us) >>
			 BBR_BW_SCALE);
	if (bbr->aggregation_acked <= expected ||
	    bbr->aggregation_acked + sample->acked_sacked >= 1U << 20) {
		bbr->aggregation_acked = 0;
		bbr->aggregation_us = conn->delivered_us;
		expected = 0;
	}
	bbr->aggregation_acked = cc_min(0xfffff, bbr->aggregation_acked + sample->acked_sacked);
	extra = cc_min(bbr->aggregation_acked - expected, conn->cwnd);
	if (extra > bbr->extra_acked[half])
		bbr->extra_acked[half] = (u16)cc_min(extra, 0xffff);
}

/* Deviation, as in google's code: at most what the bandwidth carries in 100 ms. */
CC_INLINE u32 bbr3_aggregation_cwnd(const struct bbr3 *bbr)
{
	u32 max = (u32)((u64)bbr3_bw(bbr) * bbr3_extra_acked_time >> BBR_BW_SCALE);
	u32 extra = cc_max(bbr->extra_acked[0], bbr->extra_acked[1]);

	return cc_min(bbr3_extra_acked_gain * extra >> BBR_SCALE, max);
}

#endif
