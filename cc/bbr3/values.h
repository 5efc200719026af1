/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* BBR version 3: what the model's state amounts to: bandwidth, packets wanted in flight. */
#ifndef BROBUST_CC_BBR3_VALUES_H
#define BROBUST_CC_BBR3_VALUES_H

#include "state.h"

/* Section 5.5.3: the maximum of the last two cycles of PROBE_BW. */
CC_INLINE u32 bbr3_max_bw(const struct bbr3 *bbr)
{
	return cc_max(bbr->bw_hi[0], bbr->bw_hi[1]);
}

/* BoundBWForModel, section 5.5.10.3. */
CC_INLINE u32 bbr3_bw(const struct bbr3 *bbr)
{
	return cc_min(bbr3_max_bw(bbr), bbr->bw_lo);
}

CC_INLINE bool bbr3_has_sample(const struct cc_sample *sample)
{
	return sample->delivered >= 0 && sample->interval_us > 0 && sample->acked_sacked;
}

/*
 * Where the RTT's part of a burst begins, and the largest burst that cwnd has room for: version 2
 * takes what its kernel's headers allow, version 3 is fixed.
 */
CC_INLINE u32 bbr3_max_burst(const struct cc_connection *conn)
{
	return BBR3_IS_VERSION_2 ? conn->gso_limit : BBR_GSO_MAX_SIZE;
}

/*
 * Send quantum, section 5.6.3, as Linux sizes a burst: 1 ms of data, and more where the RTT is
 * short. Deviation: the draft has no RTT in it.
 */
CC_INLINE u32 bbr3_burst_below(const struct cc_connection *conn, const struct bbr3 *bbr, u32 mss,
			       u32 gso_max_size)
{
	u64 bytes = conn->pacing_rate >> conn->pacing_shift;
	u32 halvings = bbr->min_rtt_us >> BBR3_TSO_RTT_SHIFT;
	u32 headers = BBR_GSO_MAX_SIZE - conn->tso_max_bytes;

	if (halvings < 32)
		bytes += bbr3_max_burst(conn) >> halvings;
	bytes = cc_min64(bytes, gso_max_size > headers ? gso_max_size - headers : 0);
	return cc_max((u32)bytes / mss, bbr_min_burst(conn->pacing_rate));
}

/* What is sent at once, where the stack leaves that to the control. */
CC_INLINE u32 bbr3_burst(const struct cc_connection *conn, u32 mss, const struct bbr3 *bbr)
{
	return bbr3_burst_below(conn, bbr, mss, conn->gso_max_size);
}

/* The burst that the model makes room for, whatever the device allows. */
CC_INLINE u32 bbr3_burst_goal(const struct cc_connection *conn, const struct bbr3 *bbr)
{
	return bbr3_burst_below(conn, bbr, conn->mss, bbr3_max_burst(conn));
}

/* BDPMultiple, section 5.6.4.2: without any RTT sample the initial window, which is safe. */
CC_INLINE u32 bbr3_bdp(const struct bbr3 *bbr, u32 bw, u32 gain)
{
	if (bbr->min_rtt_us == CC_NO_RTT)
		return bbr->init_cwnd;
	return bbr_bdp(bw, bbr->min_rtt_us, gain);
}

/* QuantizationBudget, section 5.6.4.2: room for three bursts (5.5.8.1), and a little more to
 * probe. */
CC_INLINE u32 bbr3_quantize(const struct cc_connection *conn, const struct bbr3 *bbr, u32 cwnd)
{
	cwnd = cc_max(cwnd, 3 * bbr3_burst_goal(conn, bbr));
	cwnd = cc_max(cwnd, bbr3_min_cwnd);
	return bbr->mode == CC_MODE_PROBE_BW_UP ? cwnd + 2 : cwnd;
}

/* Inflight, section 5.6.4.2. */
CC_INLINE u32 bbr3_inflight(const struct cc_connection *conn, const struct bbr3 *bbr, u32 bw,
			    u32 gain)
{
	return bbr3_quantize(conn, bbr, bbr3_bdp(bbr, bw, gain));
}

/*
 * Deviation: where the draft looks at what is in flight, google's code looks at what will be in
 * flight when the next packet departs, since pacing gives packets departures in the future.
 */
CC_INLINE u32 bbr3_at_departure(const struct cc_connection *conn, const struct bbr3 *bbr,
				u32 inflight)
{
	return bbr_inflight_at_departure(conn, inflight, bbr3_bw(bbr), bbr->pacing_gain,
					 bbr3_burst_goal(conn, bbr));
}

/* TargetInflight, section 5.3.3.8.3: the BDP, unless congestion has cut cwnd below it. */
CC_INLINE u32 bbr3_target_inflight(const struct cc_connection *conn, const struct bbr3 *bbr)
{
	return cc_min(bbr3_inflight(conn, bbr, bbr3_bw(bbr), BBR_UNIT), conn->cwnd);
}

/* InflightWithHeadroom, section 5.3.3.9: inflight_hi less what is left to other flows. */
CC_INLINE u32 bbr3_with_headroom(const struct bbr3 *bbr)
{
	u32 headroom;

	if (bbr->inflight_hi == BBR3_UNSET)
		return BBR3_UNSET;
	headroom = cc_max((u32)((u64)bbr->inflight_hi * bbr3_headroom >> BBR_SCALE), 1);
	return bbr->inflight_hi > headroom + bbr3_min_cwnd ? bbr->inflight_hi - headroom
							   : bbr3_min_cwnd;
}

CC_INLINE bool bbr3_is_probe_bw(const struct bbr3 *bbr)
{
	return bbr->mode >= CC_MODE_PROBE_BW_UP && bbr->mode <= CC_MODE_PROBE_BW_REFILL;
}

/* IsProbingBW, section 5.3.3.9. */
CC_INLINE bool bbr3_is_probing(const struct bbr3 *bbr)
{
	return bbr->mode == CC_MODE_STARTUP || bbr->mode == CC_MODE_PROBE_BW_REFILL ||
	       bbr->mode == CC_MODE_PROBE_BW_UP;
}

#endif
