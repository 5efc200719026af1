/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/*
 * Compensation for the CPU share: the earlier repair of Ha et al. (2021), as "2BRobust" section 3
 * describes it. It infers the time without CPU from packet timestamps, and raises bandwidth
 * estimate, pacing rate and cwnd by the inverse of the CPU share. This is a baseline to compare
 * with, not a recommendation: it has to guess the share, and raises cwnd beyond what the path
 * holds. (The prefix ha_ is part of the parameters' names.)
 *
 * The description gives no formulas. Ours: pacing has given the next packet a departure; if that
 * has passed although there is data to send and room in the window, only the CPU can have been the
 * cause. The delay counts as time without CPU. The share in the last window of time, smoothed by
 * half, divides BBR's estimate. BBR's own filter is left alone: what is raised there would be
 * raised again.
 */
#ifndef BROBUST_CC_SHARE_COMPENSATION_H
#define BROBUST_CC_SHARE_COMPENSATION_H

#include "bbr.h"

CC_PARAM(ha_window, 100, 1, 10000, CC_MILLISECONDS, "time over which the CPU share is measured")
CC_PARAM(ha_least_late, 200, 0, 100000, CC_MICROSECONDS,
	 "a shorter delay of a departure does not count")
CC_PARAM(ha_most, 2048, 256, 16384, CC_GAIN, "maximum factor for estimate, rate and cwnd")

struct ha {
	u64 window_us;	/* µs: when this window began */
	u64 counted_us; /* µs: until when delays are counted */
	u32 off_us;	/* µs without CPU in this window */
	u32 raise;	/* << 8: 1 / share */
	u64 raised_acks;
};

CC_INLINE void ha_init(struct cc_connection *conn, struct ha *ha)
{
	ha->window_us = conn->now_us;
	ha->counted_us = conn->now_us;
	ha->raise = BBR_UNIT;
}

/* Count the delay of the packet that should have left at departure_ns, and nothing twice. */
CC_INLINE void ha_count_late(const struct cc_connection *conn, struct ha *ha)
{
	u64 due_us = cc_max64(conn->departure_ns / 1000, ha->counted_us);
	bool may_send = conn->unsent_bytes >= conn->mss && conn->in_flight < conn->cwnd &&
			!conn->is_cwnd_limited;

	if (may_send && conn->now_us > due_us && conn->now_us - due_us >= ha_least_late)
		ha->off_us += (u32)(conn->now_us - due_us);
	ha->counted_us = conn->now_us;
}

CC_INLINE void ha_update_share(const struct cc_connection *conn, struct ha *ha)
{
	u64 length = conn->now_us - ha->window_us;
	u64 on, raise;

	if (length < (u64)ha_window * CC_USEC_PER_MSEC)
		return;
	on = ha->off_us < length ? length - ha->off_us : 0;
	raise = on ? (length << BBR_SCALE) / on : ha_most;
	ha->raise = (ha->raise + (u32)cc_min64(raise, ha_most)) / 2;
	ha->window_us = conn->now_us;
	ha->off_us = 0;
}

/* Called after BBR. It acts in PROBE_BW only: the other modes set the rate that they need. */
CC_INLINE void ha_on_ack(struct cc_connection *conn, const struct cc_sample *sample CC_UNUSED,
			 const struct bbr_model *model, struct ha *ha)
{
	u64 gain = (u64)model->pacing_gain * ha->raise >> BBR_SCALE;

	ha_count_late(conn, ha);
	ha_update_share(conn, ha);
	if (ha->raise <= BBR_UNIT || !bbr_is_probe_bw(model->mode))
		return;
	ha->raised_acks++;
	conn->pacing_rate = bbr_pacing_rate(conn, model->bw, (u32)gain);
	if (conn->ca_state < CC_CA_RECOVERY)
		conn->cwnd =
		    (u32)cc_min64((u64)conn->cwnd * ha->raise >> BBR_SCALE, conn->cwnd_clamp);
}

CC_INLINE void ha_report(const struct ha *ha, struct cc_report *report)
{
	report->bandwidth = report->bandwidth * ha->raise >> BBR_SCALE;
	report->deficit_acks = ha->raised_acks;
}

#endif
