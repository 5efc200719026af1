/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* BBR version 3: gains, pacing rate (section 5.6.2) and cwnd (section 5.6.4). */
#ifndef BROBUST_CC_BBR3_RATE_AND_CWND_H
#define BROBUST_CC_BBR3_RATE_AND_CWND_H

#include "aggregation.h"
#include "probe_rtt.h"

/* The table of section 5.6.1. */
static void bbr3_update_gains(struct bbr3 *bbr)
{
	bbr->pacing_gain = BBR_UNIT;
	bbr->cwnd_gain = bbr3_cwnd_gain;
	switch (bbr->mode) {
	case CC_MODE_STARTUP:
		bbr->pacing_gain = bbr3_startup_pacing_gain;
		bbr->cwnd_gain = bbr3_startup_cwnd_gain;
		break;
	case CC_MODE_DRAIN:
		bbr->pacing_gain = bbr3_drain_gain;
		bbr->cwnd_gain = bbr3_startup_cwnd_gain;
		break;
	case CC_MODE_PROBE_BW_UP:
		bbr->pacing_gain = bbr3_up_gain;
		bbr->cwnd_gain = bbr3_up_cwnd_gain;
		break;
	case CC_MODE_PROBE_BW_DOWN:
		bbr->pacing_gain = bbr3_down_gain;
		break;
	case CC_MODE_PROBE_RTT:
		bbr->cwnd_gain = BBR_UNIT;
		break;
	}
}

/* Deviation, as in google's code: at least a byte per second. */
CC_INLINE u64 bbr3_pacing_rate(const struct cc_connection *conn, u32 bw, u32 gain)
{
	return cc_min64(cc_max64(bbr_bytes_per_second(conn, bw, gain), 1), conn->max_pacing_rate);
}

/* InitPacingRate. */
static void bbr3_first_pacing_rate(struct cc_connection *conn, struct bbr3 *bbr)
{
	u32 rtt_us = CC_USEC_PER_MSEC;

	if (conn->srtt_us_8) {
		rtt_us = cc_max(conn->srtt_us_8 >> 3, 1);
		bbr->has_seen_rtt = true;
	}
	conn->pacing_rate = bbr3_pacing_rate(conn, (u32)((u64)conn->cwnd * BBR_BW_UNIT / rtt_us),
					     bbr3_startup_pacing_gain);
}

/* SetPacingRateWithGain. */
static void bbr3_set_pacing_rate(struct cc_connection *conn, struct bbr3 *bbr, u32 gain)
{
	u64 rate = bbr3_pacing_rate(conn, bbr3_bw(bbr), gain);

	if (!bbr->has_seen_rtt && conn->srtt_us_8)
		bbr3_first_pacing_rate(conn, bbr);
	if (bbr->full_bw_reached || rate > conn->pacing_rate)
		conn->pacing_rate = rate;
}

/*
 * SetCwnd, section 5.6.4.6. Deviation, as in google's code: before the pipe was full, cwnd also
 * grows up to twice the initial window, where the draft compares what was delivered with that
 * window.
 */
static void bbr3_set_cwnd(struct cc_connection *conn, const struct cc_sample *sample,
			  struct bbr3 *bbr)
{
	u32 acked = sample->acked_sacked;
	u32 cwnd = conn->cwnd;

	if (acked) {
		u32 target = bbr3_bdp(bbr, bbr3_bw(bbr), bbr->cwnd_gain);

		target = bbr3_quantize(conn, bbr, target + bbr3_aggregation_cwnd(bbr));
		if (bbr->full_bw_reached) {
			bbr->at_target = cwnd + acked >= target;
			cwnd = cc_min(cwnd + acked, target);
		} else {
			bbr->at_target = cwnd >= target && cwnd >= 2 * bbr->init_cwnd;
			if (!bbr->at_target)
				cwnd += acked;
		}
		cwnd = cc_max(cwnd, bbr3_min_cwnd);
	}
	if (bbr->mode == CC_MODE_PROBE_RTT)
		cwnd = cc_min(cwnd, bbr3_probe_rtt_cwnd(bbr));
	conn->cwnd = cc_min(cwnd, conn->cwnd_clamp);
}

/*
 * BoundCwndForModel, section 5.6.4.7: inflight_hi, less headroom where BBR does not probe for it,
 * and inflight_lo in every phase.
 */
static void bbr3_bound_cwnd(struct cc_connection *conn, const struct bbr3 *bbr)
{
	u32 max = BBR3_UNSET;

	if (bbr->mode == CC_MODE_PROBE_BW_CRUISE || bbr->mode == CC_MODE_PROBE_RTT)
		max = bbr3_with_headroom(bbr);
	else if (bbr3_is_probe_bw(bbr))
		max = bbr->inflight_hi;
	max = cc_max(cc_min(max, bbr->inflight_lo), bbr3_min_cwnd);
	conn->cwnd = cc_min(conn->cwnd, max);
}

#endif
