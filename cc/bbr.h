/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/*
 * What all versions of BBR share: units, rates, the bandwidth-delay product, the windowed maximum,
 * and the view of a model for a policy beside BBR (robust.h, steady.h, share_compensation.h).
 *
 * Every operation rounds like the kernel's (net/ipv4/tcp_bbr.c, lib/win_minmax.c): the order of
 * multiplications and shifts is part of the behaviour.
 */
#ifndef BROBUST_CC_BBR_H
#define BROBUST_CC_BBR_H

#include "cc.h"

#define BBR_BW_SCALE 24 /* bandwidths are packets per µs << 24: 750 bit/s to 100 Tbit/s */
#define BBR_BW_UNIT (1U << BBR_BW_SCALE)
#define BBR_SCALE 8 /* gains are << 8 */
#define BBR_UNIT (1U << BBR_SCALE)
#define BBR_MAX_GAIN 1023U /* the kernel keeps a gain in 10 bits */

#define BBR_MAX_TSO_SEGS 127U
#define BBR_GSO_MAX_SIZE 65536U /* GSO_LEGACY_MAX_SIZE: tso_max_bytes is that without headers */

/*
 * BBR paces this many percent below the bandwidth, so that on average the queue at the bottleneck
 * drains, and there is room for headers, which the rate does not count.
 */
CC_PARAM(bbr_pacing_margin, 1, 0, 50, CC_PERCENT,
	 "pacing rate below the bandwidth estimate by this")
/* Below this rate a burst is one packet: two packets would take 20 ms or more. Version 3 has no such
 * rate, and defines 0. */
#ifndef BBR_MIN_TSO_RATE
#define BBR_MIN_TSO_RATE 1200000
#endif
CC_PARAM(bbr_min_tso_rate, BBR_MIN_TSO_RATE, 0, 1000000000, CC_BITS_PER_SECOND,
	 "below this rate a burst is one packet")

/* What a policy beside BBR needs to know of its model. */
struct bbr_model {
	u32 bw;		 /* packets per µs << 24: the bandwidth that BBR works with */
	u32 min_rtt_us;	 /* CC_NO_RTT: none yet */
	u32 pacing_gain; /* << 8 */
	u32 high_gain;	 /* << 8: the gain of STARTUP */
	u8 mode;	 /* enum cc_mode */
};

CC_INLINE bool bbr_is_probe_bw(u8 mode)
{
	return mode == CC_MODE_PROBE_BW ||
	       (mode >= CC_MODE_PROBE_BW_UP && mode <= CC_MODE_PROBE_BW_REFILL);
}

/* The maximum of a window of time: the three best values, each from a later part of the window. */
struct bbr_max {
	struct {
		u32 time;
		u32 value;
	} best[3];
};

CC_INLINE void bbr_max_reset(struct bbr_max *max, u32 time, u32 value)
{
	for (int i = 0; i < 3; i++) {
		max->best[i].time = time;
		max->best[i].value = value;
	}
}

CC_INLINE void bbr_max_shift(struct bbr_max *max, u32 time, u32 value)
{
	max->best[0] = max->best[1];
	max->best[1] = max->best[2];
	max->best[2].time = time;
	max->best[2].value = value;
}

CC_INLINE void bbr_max_update(struct bbr_max *max, u32 window, u32 time, u32 value)
{
	u32 age;

	if (value >= max->best[0].value || time - max->best[2].time > window) {
		/* A new maximum, or all other values are too old. */
		bbr_max_reset(max, time, value);
		return;
	}
	for (int i = 1; i < 3; i++) {
		if (value < max->best[i].value)
			continue;
		for (int j = i; j < 3; j++) {
			max->best[j].time = time;
			max->best[j].value = value;
		}
		break;
	}

	age = time - max->best[0].time;
	if (age > window) {
		/* The best is too old. The second may be too; the third was checked above. */
		bbr_max_shift(max, time, value);
		if (time - max->best[0].time > window)
			bbr_max_shift(max, time, value);
	} else if (max->best[1].time == max->best[0].time && age > window / 4) {
		/* No second best in a quarter of the window: take one from the second quarter. */
		max->best[1].time = max->best[2].time = time;
		max->best[1].value = max->best[2].value = value;
	} else if (max->best[2].time == max->best[1].time && age > window / 2) {
		max->best[2].time = time;
		max->best[2].value = value;
	}
}

/* Return bytes per second. 64 bits are enough up to 2.9 Tbit/s at a gain of 2.89. */
CC_INLINE u64 bbr_bytes_per_second(const struct cc_connection *conn, u64 bw, u32 gain)
{
	u64 rate = bw * conn->mss;

	rate = rate * gain >> BBR_SCALE;
	rate *= CC_USEC_PER_SEC / 100 * (100 - bbr_pacing_margin);
	return rate >> BBR_BW_SCALE;
}

CC_INLINE u64 bbr_pacing_rate(const struct cc_connection *conn, u32 bw, u32 gain)
{
	return cc_min64(bbr_bytes_per_second(conn, bw, gain), conn->max_pacing_rate);
}

/* Return bytes of payload per second, without the margin, as bbr_get_info() reports it. */
CC_INLINE u64 bbr_bw_for_users(const struct cc_connection *conn, u32 bw)
{
	return (u64)bw * conn->mss * CC_USEC_PER_SEC >> BBR_BW_SCALE;
}

/* Return gain * bandwidth * minimum RTT in packets, rounded up. */
CC_INLINE u32 bbr_bdp(u32 bw, u32 min_rtt_us, u32 gain)
{
	u64 bdp = (u64)bw * min_rtt_us;

	/* No RTT yet (all packets were retransmitted, and there are no timestamps): a safe
	 * value. */
	if (min_rtt_us == CC_NO_RTT)
		return CC_INIT_CWND;
	return (u32)(((bdp * gain >> BBR_SCALE) + BBR_BW_UNIT - 1) >> BBR_BW_SCALE);
}

/* Return the minimum of packets in a burst. */
CC_INLINE u32 bbr_min_burst(u64 pacing_rate)
{
	return pacing_rate < bbr_min_tso_rate >> 3 ? 1 : 2;
}

/* Return the packets of a burst: what the stack sends at once, unless the device limits it. */
CC_INLINE u32 bbr_tso_segs_goal(const struct cc_connection *conn)
{
	u32 bytes = (u32)cc_min64(conn->pacing_rate >> conn->pacing_shift, conn->tso_max_bytes);
	u32 segs = cc_max(bytes / conn->mss, bbr_min_burst(conn->pacing_rate));

	return cc_min(segs, BBR_MAX_TSO_SEGS);
}

/*
 * Return the packets of a burst where the stack leaves its size to the control: what the pacing rate
 * yields, without what the stack adds on short paths.
 */
CC_INLINE u32 bbr_burst_of_rate(const struct cc_connection *conn, u32 mss)
{
	u64 max = (u64)conn->gso_max_size + conn->tso_max_bytes - BBR_GSO_MAX_SIZE;
	u64 bytes = cc_min64(conn->pacing_rate >> conn->pacing_shift, max);

	return cc_max((u32)bytes / mss, bbr_min_burst(conn->pacing_rate));
}

/*
 * Return how many of "inflight" packets will be in the network when the next one departs: pacing
 * has given packets departures in the future, and until then others are delivered. Where BBR probes
 * for more, the next burst counts too.
 */
CC_INLINE u32 bbr_inflight_at_departure(const struct cc_connection *conn, u32 inflight, u32 bw,
					u32 pacing_gain, u32 burst)
{
	u64 wait_ns = conn->departure_ns > conn->clock_ns ? conn->departure_ns - conn->clock_ns : 0;
	u32 delivered = (u32)(bw * (wait_ns / 1000) >> BBR_BW_SCALE);

	if (pacing_gain > BBR_UNIT)
		inflight += burst;
	return delivered < inflight ? inflight - delivered : 0;
}

#endif
