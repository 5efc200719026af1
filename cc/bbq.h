/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/*
 * BBQ (Ma, Jiang, Wang, Li, "Fairness of Congestion-Based Congestion Control", 2017, section V):
 * BBR version 1 whose probing does not favour long round-trip times.
 *
 * A flow of BBR probes for one minimum RTT. A flow with a long RTT therefore adds more to the queue
 * each time, and where several flows meet, most of the queue is its own. BBQ probes for at most
 * alpha while there is a queue, so that all flows add about the same; where the RTT shows no queue,
 * it probes like BBR, since filling the pipe would otherwise take long.
 */
#ifndef BROBUST_CC_BBQ_H
#define BROBUST_CC_BBQ_H

#include "cc.h"

#define BBR1_IS_PHASE_OVER bbq_is_phase_over
#include "bbr1.h"

CC_PARAM(bbq_alpha, 3000, 1, 10000000, CC_MICROSECONDS,
	 "maximum time of probing while there is a queue")
CC_PARAM(bbq_beta, 10, 0, 1000, CC_PERMILLE, "RTT above the minimum that shows a queue: 5 to 10")
CC_PARAM(bbq_drain_to_bdp, 0, 0, 1, CC_SWITCH,
	 "drain down to one BDP, however long it takes (section V-A)")

/* Everything but the phases is BBR's: bbq_init is bbr1_init, and so on (bbr_control.h pastes
 * names). */
#define bbq bbr1

/* Section V-B: the pipe is underutilized where RTT < (1 + beta) MinRTT. */
CC_INLINE bool bbq_has_queue(const struct cc_sample *sample, const struct bbr1 *bbr)
{
	return sample->rtt_us >= 0 &&
	       (u64)sample->rtt_us * 1000 >= (u64)bbr->min_rtt_us * (1000 + bbq_beta);
}

static bool bbq_is_phase_over(const struct cc_connection *conn, const struct cc_sample *sample,
			      const struct bbr1 *bbr)
{
	/* Alpha ends probing whatever is in flight: in one alpha, gain * BDP is not reached. */
	if (bbr->pacing_gain > BBR_UNIT && bbr->min_rtt_us > bbq_alpha &&
	    bbq_has_queue(sample, bbr))
		return cc_us_since(conn->delivered_us, bbr->cycle_us) > bbq_alpha;
	/* Exactly one, without room for bursts, of all that is in flight: Linux 4.9, the paper's, did
	 * not ask what would be left at the next departure. */
	if (bbr->pacing_gain < BBR_UNIT && bbq_drain_to_bdp)
		return sample->prior_in_flight <= bbr_bdp(bbr1_bw(bbr), bbr->min_rtt_us, BBR_UNIT);
	return bbr1_is_phase_over(conn, sample, bbr);
}

#endif
