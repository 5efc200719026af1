/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/*
 * The minimal repair of "2BRobust" (Elmenhorst, Aschenbruck, 2026), section 6.2, beside any version
 * of BBR: ours (brb_bbr1_robust, ...) and the kernel's own (cc/beside_kernel_bbr/bbr_robust.c).
 *
 * The problem. While the CPU of a sender is taken away, its pacing schedule stands still. Linux
 * makes up for a late packet with at most half of one gap between packets
 * (tcp_update_skb_after_send), so what could not be sent is never made up for. The delivery rate
 * falls below the pacing rate; BBR takes it for the bandwidth of the path, paces at that, and so on
 * down to a few Mbit/s. The sender can tell, because less than one BDP, by BBR's own estimate, is
 * in flight (section 6.1).
 *
 * The rule. After BBR has processed an ACK: if less than one BDP is in flight, pace at STARTUP's
 * gain (2.887; version 3: 2.773) until the next ACK. Nothing else changes: neither cwnd nor
 * pacing_gain in BBR's state. The paper's patch does overwrite pacing_gain; but BBR leaves a phase
 * of gain > 1 only with "gain" BDPs in flight (or after a loss), so its gain cycle would stop
 * during a deficit.
 *
 * When. Right after an ACK the amount in flight is smallest: the acknowledged packets are gone, and
 * those that they admit are not sent yet. The paper's patch looks there too (bbr_update_gains). The
 * rate stands until the next ACK, even if sending ends the deficit earlier. Ending it at once, in
 * the write loop, is possible and wrong: a CPU that comes back for 10 ms of 20 has to send more
 * than one BDP in its 10 ms (of 20 Mbit/s at 10 ms RTT it gets 16; if the repair ends at once 7.6;
 * without repair 3.5). If the CPU is there, the next ACK comes soon. BBR sets its own rate on every
 * ACK outside STARTUP, so nothing has to be undone.
 *
 * In PROBE_BW only. STARTUP paces at that gain anyway and never lowers its rate, so another rate
 * would stay; DRAIN and PROBE_RTT want little in flight.
 *
 * Not while the application is the limit: then little is in flight for lack of data. It takes three
 * signs to tell, since each alone misses some cases. Share of ACKs with a false deficit (20 Mbit/s,
 * 10 ms RTT) for applications that write
 *						20 kB/40 ms	8 kB/8 ms	60 kB/100 ms
 *	without a guard				68 %		80 %		34 %
 *	tp->app_limited: limited now		67 %		 0 %		32 %
 *	rs->is_app_limited: an RTT ago		 1 %		 0 %		31 %
 *	both					 1 %		 0 %		30 %
 *	both, and unsent data			 0 %		 0 %		 0 %
 *
 * In all phases of PROBE_BW, as in the paper. The phase of gain 0.75 lowers the amount in flight on
 * purpose, but BBR ends it at one BDP; leaving that phase out changed nothing that we could
 * measure, with contention or without. A flow that has its CPU keeps somewhat more than one BDP in
 * flight: at 20 and 40 Mbit/s less than 1 % of its ACKs find a deficit.
 *
 * The paper's own patch, for comparison, is the four switches below (cc/controls/brb_bbr*_paper.c):
 * in every mode, without the guard, with the paper's bytes_sent - bytes_acked, and with pacing_gain
 * written. bytes_sent has retransmissions too, so each of them hides that much of a deficit from
 * then on. The snapshot has no such counter; a packet that was marked lost is taken as sent again.
 */
#ifndef BROBUST_CC_ROBUST_H
#define BROBUST_CC_ROBUST_H

#include "bbr.h"

CC_PARAM(robust_repair, 1, 0, 1, CC_SWITCH, "off: BBR as it is, to see what the repair is worth")
CC_PARAM(robust_gain, 0, 0, BBR_MAX_GAIN, CC_GAIN, "pacing gain in a deficit; 0: STARTUP's")

#ifdef ROBUST_AS_IN_PAPER
CC_PARAM(paper_every_mode, 1, 0, 1, CC_SWITCH, "on: repair in every mode; off: only in PROBE_BW")
CC_PARAM(paper_bytes, 1, 0, 1, CC_SWITCH,
	 "on: in flight is bytes_sent - bytes_acked, with all retransmissions")
CC_PARAM(paper_guard, 0, 0, 1, CC_SWITCH, "on: not while the application is the limit")
CC_PARAM(paper_writes_gain, 1, 0, 1, CC_SWITCH,
	 "on: the gain replaces BBR's own, by which BBR ends its phases")
#else
#define paper_every_mode 0
#define paper_bytes 0
#define paper_guard 1
#endif

struct robust {
	u64 deficit_acks; /* ACKs that found a deficit */
	u32 pacing_gain;  /* << 8, in place of BBR's; 0 without a deficit */
};

CC_INLINE bool robust_has_deficit(const struct cc_connection *conn, const struct cc_sample *sample,
				  const struct bbr_model *model)
{
	if (!paper_every_mode && !bbr_is_probe_bw(model->mode))
		return false;
	if (paper_guard &&
	    (conn->app_limited || sample->is_app_limited || conn->unsent_bytes < conn->mss))
		return false;
	if (paper_bytes)
		return conn->snd_nxt - conn->snd_una + (u64)conn->lost * conn->mss <
		       (u64)bbr_bdp(model->bw, model->min_rtt_us, BBR_UNIT) * conn->mss;
	return conn->in_flight < bbr_bdp(model->bw, model->min_rtt_us, BBR_UNIT);
}

CC_INLINE void robust_init(struct cc_connection *conn CC_UNUSED, struct robust *robust CC_UNUSED)
{
}

/* Called after BBR: raise the rate if there is a deficit, and return whether there is one. */
CC_INLINE bool robust_on_ack(struct cc_connection *conn, const struct cc_sample *sample,
			     const struct bbr_model *model, struct robust *robust)
{
	u64 rate;

	robust->pacing_gain = 0;
	if (!robust_repair || !robust_has_deficit(conn, sample, model))
		return false;
	robust->pacing_gain = robust_gain ? robust_gain : model->high_gain;
	robust->deficit_acks++;
	rate = bbr_pacing_rate(conn, model->bw, robust->pacing_gain);
	if (!paper_every_mode || model->mode != CC_MODE_STARTUP || rate > conn->pacing_rate)
		conn->pacing_rate = rate; /* STARTUP never lowers it */
	return true;
}

#ifdef ROBUST_AS_IN_PAPER
#define POLICY_WRITES_GAIN

/* Return the gain that BBR's state has until the next ACK. */
CC_INLINE u32 robust_written_gain(const struct robust *robust, u32 pacing_gain)
{
	return paper_writes_gain && robust->pacing_gain ? robust->pacing_gain : pacing_gain;
}
#endif

CC_INLINE void robust_report(const struct robust *robust, struct cc_report *report)
{
	if (robust->pacing_gain)
		report->pacing_gain = robust->pacing_gain;
	report->deficit_acks = robust->deficit_acks;
}

#endif
