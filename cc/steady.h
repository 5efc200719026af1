/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/*
 * A pacing schedule that is kept on average, whatever the sender's CPU does, beside any version of
 * BBR: ours (brb_bbr1_steady, brb_bbr3_steady) and the kernel's own (bbr_steady). docs/repair.md
 * tells what it is worth, which rule contributes what, and when not to use it.
 *
 * The problem. A packet that leaves late pushes all later ones back: Linux makes up for at most
 * half of one gap between packets (tcp_update_skb_after_send) and drops the rest. A sender whose
 * CPU is away for longer sends less than the rate at which it paces, whatever that rate is. From
 * its deliveries BBR learns a bandwidth that is not the path's; it paces at that, and so on down.
 *
 * The idea. The delay that Linux drops is kept as a lag, a time. While there is a lag, packets are
 * paced faster, until what left early has made up for what left late. Then the average rate is
 * BBR's, and nothing spirals down. BBR's model, gains and phases are not touched: whenever BBR
 * looks at its rate and window it finds its own values; only what the stack is given differs.
 *
 * Rule 1, a stall. Pacing had given the next burst a departure, which has passed by more than Linux
 * makes up for, and only the CPU can have been the cause: data had been waiting, and congestion
 * window and receive window had room for it. (tp->app_limited is not asked: it marks what was sent
 * before, and in a connection that carries one page at a time, every beginning.) The lag grows by
 * one and a half times the stall. With the stall alone the schedule would be kept, but at whatever
 * rate it has: BBR's own probe lasts one round trip, too short to find more where the CPU is away
 * for longer than that.
 *
 * Rule 2, the rate. While there is a lag, the rate is BBR's times 1 + 6 stall / slot, where slot is
 * the time for which the CPU was there between the last two stalls: a stall is made up for in a
 * sixth of a slot. With 1 instead of 6 it would take the whole slot; but slots differ, and so do
 * stalls. Sending it all at once would fill a short buffer, which could drain in between.
 *
 * Rule 3, the window, must hold what is sent ahead and no more, or neighbours pay: a BDP and one
 * and a quarter times what BBR's bandwidth carries in the longest recent stall, but at least two
 * BDP. It replaces BBR's, whose allowance for ACKs that come in bunches measures the same stalls,
 * and holds in fast recovery, too: the ACKs of a whole window have waited for the CPU, and when
 * losses are found among them, hardly anything is in flight that could be conserved. Version 3
 * remembers a bandwidth for seconds, and with it what ACKs in bunches once looked like (142 of 100
 * Mbit/s, while a neighbour was in PROBE_RTT); so with it the window counts the greatest of the last
 * half second only. Version 1 forgets within ten round trips.
 *
 * Rule 4, losses. What is sent ahead may be more than the buffer of the path holds. A buffer that
 * overflows drops most of the packets that follow, while random losses are far apart. So a lost
 * packet adds 7 to an excess, and a delivered one takes 1 away: with less than one loss in eight
 * the excess stays near 0, and where it reaches 20 (three losses next to each other) a buffer
 * overflowed. At the end of such a round the amount in flight gets a bound, or a lower one: less by
 * eight packets for each packet in excess, by 30 % at most. What is lost in the next round was sent
 * before that, and does not count. Every other round in which the bound was reached raises it: by an
 * eighth of the way back to where it last was, or by 1 %.
 *
 * A flow that has its CPU has no stall: a timer is late by microseconds, and half a gap is half a
 * millisecond (half of a burst, above 524 Mbit/s). Without a stall every packet leaves as without
 * the repair, and so it does from two seconds after the last stall on; from twelve on where rule 4
 * bounds what is in flight.
 */
#ifndef BROBUST_CC_STEADY_H
#define BROBUST_CC_STEADY_H

#include "bbr.h"

#define REPAIR_INLINE CC_INLINE
#include "repair.h"

#ifndef STEADY_RECALL
#define STEADY_RECALL 0 /* version 1 forgets by itself */
#endif

CC_PARAM(steady_repair, 1, 0, 1, CC_SWITCH, "off: BBR as it is, to see what the repair is worth")
CC_PARAM(steady_haste, 1536, 0, 65536, CC_GAIN,
	 "how much faster than in a slot a stall is made up for")
CC_PARAM(steady_most, 20, 1, 1000, CC_TIMES, "maximum of the rate, times BBR's")
/* As late as this a timer is in a kernel that has its CPU. */
CC_PARAM(steady_least_stall, 100, 0, 1000000, CC_MICROSECONDS, "a shorter delay is no stall")
/* RTO_MIN is 200 ms: after a longer stall the stack starts again, and so may the schedule. */
CC_PARAM(steady_most_stall, 250, 1, 10000, CC_MILLISECONDS, "a longer stall counts as this")
CC_PARAM(steady_memory, REPAIR_MEMORY, 1, 100000, CC_MILLISECONDS,
	 "a stall is remembered for one to two times this")
CC_PARAM(steady_hold, REPAIR_HOLD, 0, 1000000, CC_MILLISECONDS,
	 "for so long after a stall a bound that is reached keeps the memory")
CC_PARAM(steady_ahead, REPAIR_AHEAD, 0, 2560, CC_GAIN, "part of a stall that is made up for")
CC_PARAM(steady_window, REPAIR_WINDOW, 0, 2560, CC_GAIN,
	 "part of the longest stall, at the bandwidth, that the window holds beside a BDP")
CC_PARAM(steady_recall, STEADY_RECALL, 0, 100000, CC_MILLISECONDS,
	 "the window counts the greatest bandwidth of this time; 0: BBR's, however old")
CC_PARAM(steady_loss, REPAIR_LOSS, 0, 1000, CC_TIMES,
	 "what a lost packet adds to the excess, of which a delivered one takes 1; 0: losses never "
	 "bound what is in flight")
CC_PARAM(steady_overflow, REPAIR_OVERFLOW, 1, 100000, CC_TIMES,
	 "excess at which a buffer overflowed")
CC_PARAM(steady_cut, REPAIR_CUT, 0, 1000, CC_PACKETS,
	 "by how much a packet in excess lowers the bound")
CC_PARAM(steady_beta, REPAIR_BETA, 1, 256, CC_GAIN, "least that a round leaves of the bound")
CC_PARAM(steady_growth, REPAIR_GROWTH, 0, 1024, CC_PER_1024,
	 "what another round adds to a bound that it reached")

#define POLICY_SCHEDULES /* bbr_control.h: it also acts when packets are sent */

struct steady {
	u64 own_rate;	/* bytes/s: BBR's; 0: none yet */
	u64 rate;	/* bytes/s: what the stack was given */
	u64 checked_ns; /* when steady_check() last ran */
	u64 resumed_ns; /* when the CPU last came back */
	u64 slot_ns;	/* for how long the CPU was there before that */
	u64 lag_ns;	/* how far the stack's schedule is behind the one to keep */
	u64 stalls;	/* number of stalls */
	u32 snd_nxt;	/* at checked_ns: sequence number of the next byte to send, */
	u32 written;	/* and of the byte after the application's last one */
	u32 own_cwnd;	/* packets: BBR's */
	u32 cwnd;	/* packets: what the stack was given */
	u32 bw;		/* the bandwidth that the window counts */
	u32 bdp;	/* packets */
	u32 lost;	/* conn->lost at the last ACK */
	u32 round;	/* the round ends with a packet sent at this value of "delivered" */
	u8 mode;	/* enum cc_mode */
	struct bbr_max recent_bw;
	struct repair_memory stall;
	struct repair_bound bound; /* packets */
};

CC_INLINE void steady_init(struct cc_connection *conn, struct steady *st)
{
	st->checked_ns = conn->clock_ns;
	st->resumed_ns = conn->clock_ns;
	st->stall.since = conn->clock_ns;
	st->snd_nxt = conn->snd_nxt;
	st->written = conn->snd_nxt + conn->unsent_bytes;
	st->lost = conn->lost;
	st->round = conn->delivered;
}

CC_INLINE struct repair_rule steady_rule(void)
{
	return (struct repair_rule){
	    .packet = 1,
	    .ahead = steady_ahead,
	    .window = steady_window,
	    .loss = steady_loss,
	    .overflow = steady_overflow,
	    .cut = steady_cut,
	    .beta = steady_beta,
	    .growth = steady_growth,
	    .memory_ms = steady_memory,
	    .hold_ms = steady_hold,
	};
}

CC_INLINE u64 steady_ns(u64 bytes, u64 rate)
{
	return rate ? bytes * 1000000000ULL / rate : 0;
}

/* Return half of the gap before the next burst: Linux makes up for that much. */
CC_INLINE u64 steady_half_gap(const struct cc_connection *conn)
{
	u64 burst = (u64)bbr_tso_segs_goal(conn) * conn->mss;

	return steady_ns(burst, conn->pacing_rate) / 2;
}

/* Rule 1: return the length of a stall that has just ended, or 0. in_flight is from before the
 * event. */
CC_INLINE u64 steady_stall(const struct cc_connection *conn, u32 in_flight, const struct steady *st)
{
	bool waited = (s32)(st->written - conn->snd_nxt) >= (s32)conn->mss;
	u64 late, half_gap;

	if (!st->own_rate || !waited || conn->receiver_room < conn->mss ||
	    in_flight + bbr_tso_segs_goal(conn) > conn->cwnd)
		return 0;
	/* After a timeout the departure is that of a packet which nobody acknowledged. */
	if (conn->ca_state == CC_CA_LOSS)
		return 0;
	/* The last pass ended for another reason than pacing, or the departure is not due yet. */
	if (conn->departure_ns <= st->checked_ns || conn->departure_ns >= conn->clock_ns)
		return 0;
	late = conn->clock_ns - conn->departure_ns;
	half_gap = steady_half_gap(conn);
	if (late <= half_gap || late < (u64)steady_least_stall * 1000)
		return 0;
	return cc_min64(late - half_gap, (u64)steady_most_stall * 1000000);
}

/* Called first at each event. */
CC_INLINE void steady_check(const struct cc_connection *conn, u32 in_flight, struct steady *st)
{
	u32 sent = cc_after(conn->snd_nxt, st->snd_nxt) ? conn->snd_nxt - st->snd_nxt : 0;
	u64 stall = steady_stall(conn, in_flight, st);
	struct repair_rule rule = steady_rule();

	repair_forget(&rule, conn->clock_ns, &st->stall);
	if (st->lag_ns && st->rate > st->own_rate) {
		u64 gained = steady_ns(sent, st->own_rate) - steady_ns(sent, st->rate);

		st->lag_ns -= cc_min64(gained, st->lag_ns);
	}
	if (stall) {
		st->stalls++;
		st->slot_ns = cc_max64(st->checked_ns - st->resumed_ns, 1);
		st->resumed_ns = conn->clock_ns;
		st->lag_ns = repair_lag(&rule, st->lag_ns, stall, conn->clock_ns, &st->stall);
	}
	st->bound.round_max = cc_max(st->bound.round_max, in_flight);
	st->checked_ns = conn->clock_ns;
	st->snd_nxt = conn->snd_nxt;
	st->written = conn->snd_nxt + conn->unsent_bytes;
}

/* Rule 2. PROBE_RTT wants an empty path, so the lag waits. It outlives pauses of the application, as
 * long as a stall is remembered: without that, a server's answers, each cut short by stalls, take
 * up to half as long again, and the path drops as many of their packets (docs/servers.md). */
CC_INLINE void steady_set_rate(struct cc_connection *conn, struct steady *st)
{
	u64 faster = BBR_UNIT;

	if (st->lag_ns && st->mode != CC_MODE_PROBE_RTT)
		faster += repair_longest(&st->stall) * steady_haste / cc_max64(st->slot_ns, 1);
	faster = cc_min64(faster, (u64)steady_most << BBR_SCALE);
	st->rate = st->own_rate;
	if (faster > BBR_UNIT && st->own_rate < 1ULL << 40)
		st->rate = cc_min64(st->own_rate * faster >> BBR_SCALE, conn->max_pacing_rate);
	conn->pacing_rate = st->rate;
}

/* Return the bandwidth that the window counts: BBR's, but at most the greatest sample of the last
 * steady_recall. A sample that the application has limited says nothing of the path. */
CC_INLINE u32 steady_window_bw(const struct cc_connection *conn, const struct cc_sample *sample,
			       u32 bw, struct steady *st)
{
	u64 seen;

	if (!steady_recall)
		return bw;
	if (sample->interval_us > 0 && sample->delivered >= 0 && !sample->is_app_limited) {
		seen = (u64)sample->delivered * BBR_BW_UNIT / (u64)sample->interval_us;
		bbr_max_update(&st->recent_bw, steady_recall, (u32)(conn->clock_ns / 1000000),
			       (u32)seen);
	}
	return st->recent_bw.best[0].value ? cc_min(bw, st->recent_bw.best[0].value) : bw;
}

/* Rules 3 and 4. After a timeout, in PROBE_RTT and before PROBE_BW the window is BBR's. */
CC_INLINE void steady_set_cwnd(struct cc_connection *conn, struct steady *st)
{
	struct repair_rule rule = steady_rule();
	u64 ahead_us = repair_ahead(&rule, &st->stall) / 1000;
	u64 ahead = st->bw * ahead_us >> BBR_BW_SCALE;

	if (ahead_us && bbr_is_probe_bw(st->mode) && conn->ca_state != CC_CA_LOSS)
		conn->cwnd = (u32)cc_min64(repair_window(&rule, st->bdp, ahead), conn->cwnd_clamp);
	if (st->bound.cap)
		conn->cwnd = cc_min(conn->cwnd, st->bound.cap);
	st->cwnd = conn->cwnd;
}

/* Rule 4, at each ACK. After a timeout all is lost, whatever the buffer did. */
CC_INLINE void steady_count_losses(const struct cc_connection *conn, const struct cc_sample *sample,
				   struct steady *st)
{
	struct repair_rule rule = steady_rule();
	u32 lost = conn->ca_state == CC_CA_LOSS ? 0 : conn->lost - st->lost;

	repair_count(&rule, lost, sample->acked_sacked, &st->bound);
	st->lost = conn->lost;
	if (sample->delivered < 0 || cc_after(st->round, sample->prior_delivered))
		return;
	repair_end_round(&rule, conn->in_flight, conn->clock_ns, &st->stall, &st->bound);
	st->round = conn->delivered;
}

/* Called before BBR: give back its own rate and window, unless the stack has set others since. */
CC_INLINE void steady_before(struct cc_connection *conn, const struct steady *st)
{
	if (!st->own_rate)
		return;
	if (conn->pacing_rate == st->rate)
		conn->pacing_rate = st->own_rate;
	if (conn->cwnd == st->cwnd)
		conn->cwnd = st->own_cwnd;
}

/* Called after BBR: keep its rate and window, and give the stack ours. */
CC_INLINE void steady_after(struct cc_connection *conn, struct steady *st)
{
	st->own_rate = conn->pacing_rate;
	st->own_cwnd = conn->cwnd;
	if (conn->ca_state == CC_CA_LOSS)
		st->lost = conn->lost; /* a timeout that is undone has ended before the next ACK */
	if (!steady_repair)
		return;
	steady_set_cwnd(conn, st);
	steady_set_rate(conn, st);
}

CC_INLINE void steady_before_ack(struct cc_connection *conn, const struct cc_sample *sample,
				 struct steady *st)
{
	if (steady_repair)
		steady_check(conn, sample->prior_in_flight, st);
	steady_before(conn, st);
}

CC_INLINE void steady_on_ack(struct cc_connection *conn, const struct cc_sample *sample,
			     const struct bbr_model *model, struct steady *st)
{
	st->mode = model->mode;
	st->bw = steady_window_bw(conn, sample, model->bw, st);
	st->bdp = bbr_bdp(st->bw, model->min_rtt_us, BBR_UNIT);
	steady_count_losses(conn, sample, st);
	steady_after(conn, st);
}

/* Called at each pass of the write loop: at ACKs alone, most stalls would end before they are
 * seen. */
CC_INLINE void steady_on_send(struct cc_connection *conn, struct steady *st)
{
	if (!st->own_rate || !steady_repair)
		return;
	steady_check(conn, conn->in_flight, st);
	if (conn->pacing_rate != st->rate) /* SO_MAX_PACING_RATE was set */
		st->own_rate = conn->pacing_rate;
	steady_set_rate(conn, st);
}

CC_INLINE void steady_report(const struct steady *st, struct cc_report *report)
{
	u64 faster = st->own_rate >> BBR_SCALE ? st->rate / (st->own_rate >> BBR_SCALE) : 0;

	if (faster > BBR_UNIT)
		report->pacing_gain = (u32)cc_min64(report->pacing_gain * faster >> BBR_SCALE, ~0U);
	report->deficit_acks = st->stalls;
}

#endif
