/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/*
 * The minimal repair of "2BRobust" (Elmenhorst, Aschenbruck, 2026), section 6.2, beside any version
 * of BBR: ours (brb_bbr1_robust, ...) and the kernel's own (bpf/bbr_robust.bpf.c).
 *
 * The trouble. While the CPU of a sender is taken away, its pacing schedule stands still. Linux
 * repays a late packet with at most half of one gap between packets (tcp_update_skb_after_send),
 * so what was not sent meanwhile is never made up for. The delivery rate falls below the pacing
 * rate, BBR takes it for the bandwidth of the path, paces at that, and so on down to a few Mbit/s.
 * Less than one BDP in flight, by BBR's own estimate, is how the sender can tell (section 6.1).
 *
 * The rule. After BBR has done its work on an ACK: if less than one BDP is in flight, pace at
 * STARTUP's gain (2.887; version 3: 2.773) until the next ACK. Nothing else changes: not cwnd, and
 *not pacing_gain in BBR's state. The paper's patch does overwrite pacing_gain; but BBR leaves a
 *phase of gain > 1 only with "gain" BDPs in flight (or a loss), so its gain cycle would stop during
 *a deficit.
 *
 * When. Right after an ACK the least is in flight: the acked packets are gone, and those that they
 * admit are not sent yet. The paper's patch looks there too (bbr_update_gains). The rate stands
 * until the next ACK, even if sending ends the deficit before. Ending it at once, in the write
 * loop, is possible and wrong: a CPU that comes back for 10 ms of 20 has to send more than one BDP
 * in its 10 ms (of 20 Mbit/s at 10 ms RTT it gets 16; if ended at once 7.6; without repair 3.5).
 * With the CPU at hand, the next ACK comes soon. BBR sets its own rate on every ACK outside
 * STARTUP, so there is nothing to undo.
 *
 * Not while BBR is in another mode than PROBE_BW. STARTUP paces at that gain anyway and never
 * lowers its rate, so an override would stick; DRAIN and PROBE_RTT want little in flight.
 *
 * Not while the application is the limit: little is in flight then for lack of data. It takes
 * three signs, since each alone misses some. Share of ACKs with a false deficit (20 Mbit/s, 10 ms
 * RTT) for applications that write	   20 kB/40 ms	8 kB/8 ms  60 kB/100 ms
 *	no guard				68 %	   80 %		34 %
 *	tp->app_limited: limited now		67 %	    0 %		32 %
 *	rs->is_app_limited: an RTT ago		 1 %	    0 %		31 %
 *	both					 1 %	    0 %		30 %
 *	both, and unsent data: at its end	 0 %	    0 %		 0 %
 *
 * In all phases of PROBE_BW, as in the paper. The phase of gain 0.75 lowers the amount in flight on
 * purpose, but BBR ends it at one BDP; leaving it out changed nothing that we could measure, with
 * contention or without. A flow that has its CPU keeps somewhat more than one BDP in flight: at 20
 * and 40 Mbit/s less than 1 % of its ACKs find a deficit.
 */
#ifndef BROBUST_CC_ROBUST_H
#define BROBUST_CC_ROBUST_H

#include "bbr.h"

CC_PARAM(robust_repair, 1, 0, 1, CC_SWITCH, "off: neither look nor act, to see what it is worth")
CC_PARAM(robust_gain, 0, 0, BBR_MOST_GAIN, CC_GAIN, "pacing in a deficit; 0: that of STARTUP")

struct robust {
	u64 deficit_acks; /* ACKs that found one */
	u32 pacing_gain;  /* << 8: in place of the algorithm's; 0 without a deficit */
};

CC_INLINE bool robust_has_deficit(const struct cc_connection *conn, const struct cc_sample *sample,
				  const struct bbr_model *model)
{
	if (!bbr_is_probe_bw(model->mode))
		return false;
	if (conn->app_limited || sample->is_app_limited || conn->unsent_bytes < conn->mss)
		return false;
	return conn->in_flight < bbr_bdp(model->bw, model->min_rtt_us, BBR_UNIT);
}

CC_INLINE void robust_init(struct cc_connection *conn CC_UNUSED, struct robust *robust CC_UNUSED)
{
}

/* After the algorithm has done its work: true, and the rate is raised, while the deficit lasts. */
CC_INLINE bool robust_on_ack(struct cc_connection *conn, const struct cc_sample *sample,
			     const struct bbr_model *model, struct robust *robust)
{
	robust->pacing_gain = 0;
	if (!robust_repair || !robust_has_deficit(conn, sample, model))
		return false;
	robust->pacing_gain = robust_gain ? robust_gain : model->high_gain;
	robust->deficit_acks++;
	conn->pacing_rate = bbr_pacing_rate(conn, model->bw, robust->pacing_gain);
	return true;
}

CC_INLINE void robust_report(const struct robust *robust, struct cc_report *report)
{
	if (robust->pacing_gain)
		report->pacing_gain = robust->pacing_gain;
	report->deficit_acks = robust->deficit_acks;
}

#endif
