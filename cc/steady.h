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
 * makes up for, and only the CPU can have been the cause: data had been waiting, congestion window
 * and receive window had room for it, and the application was not the limit. The lag grows by the
 * stall.
 *
 * Rule 2, the rate. While there is a lag, the rate is BBR's times 1 + 6 stall / slot, where slot is
 * the time for which the CPU was there between the last two stalls: a stall is made up for in a
 * sixth of a slot. With 1 instead of 6 it would take the whole slot; but slots differ, and so do
 * stalls. Sending it all at once would fill a short buffer, which could drain in between.
 *
 * Rule 3, the window, must hold what is sent ahead. It is larger by what BBR's bandwidth carries in
 * the longest recent stall.
 *
 * Rule 4, losses. What is sent ahead may be more than the buffer of the path holds, and version 1
 * does not react to losses. So while there are stalls, the amount in flight has a bound that learns
 * from losses, as in version 3. A round that loses more than 1 % cuts the bound to what was
 * delivered, by 30 % at most, and cuts by 30 % how much of a stall may be made up for. Every other
 * round adds 1 % to both.
 *
 * A flow that has its CPU has no stall: a timer is late by microseconds, and half a gap is half a
 * millisecond (half of a burst, above 524 Mbit/s). Without a stall every packet leaves as without
 * the repair, and so it does from two seconds after the last stall on.
 */
#ifndef BROBUST_CC_STEADY_H
#define BROBUST_CC_STEADY_H

#include "bbr.h"

CC_PARAM(steady_repair, 1, 0, 1, CC_SWITCH, "off: BBR as it is, to see what the repair is worth")
CC_PARAM(steady_haste, 1536, 0, 65536, CC_GAIN,
	 "how much faster than in a slot a stall is made up for")
CC_PARAM(steady_most, 20, 1, 1000, CC_TIMES, "maximum of the rate, times BBR's")
/* As late as this a timer is in a kernel that has its CPU. */
CC_PARAM(steady_least_stall, 100, 0, 1000000, CC_MICROSECONDS, "a shorter delay is no stall")
/* RTO_MIN is 200 ms: after a longer stall the stack starts again, and so may the schedule. */
CC_PARAM(steady_most_stall, 250, 1, 10000, CC_MILLISECONDS, "a longer stall counts as this")
CC_PARAM(steady_memory, 1000, 1, 100000, CC_MILLISECONDS,
	 "a stall is remembered for one to two times this")
CC_PARAM(steady_window, 256, 0, 2560, CC_GAIN,
	 "part of a stall, at the bandwidth, that the window grows by")
CC_PARAM(steady_loss, 10, 1, 1024, CC_PER_1024,
	 "loss in a round that cuts the bounds; 1: losses never do")
CC_PARAM(steady_beta, 179, 1, 256, CC_GAIN, "what a cut leaves of the bounds")
CC_PARAM(steady_growth, 10, 0, 1024, CC_PER_1024,
	 "what a round without such loss adds to the bounds")

#define POLICY_SCHEDULES /* bbr_control.h: it also acts when packets are sent */

struct steady {
	u64 own_rate;	  /* bytes/s: BBR's; 0: none yet */
	u64 rate;	  /* bytes/s: what the stack was given */
	u64 checked_ns;	  /* when steady_check() last ran */
	u64 resumed_ns;	  /* when the CPU last came back */
	u64 slot_ns;	  /* for how long the CPU was there before that */
	u64 memory_ns;	  /* when stall_ns[0] began */
	u64 stall_ns[2];  /* longest stall since memory_ns, and in the time before */
	u64 lag_ns;	  /* how far the stack's schedule is behind the one to keep */
	u64 stalls;	  /* number of stalls */
	u32 snd_nxt;	  /* at checked_ns: sequence number of the next byte to send, */
	u32 written;	  /* and of the byte after the application's last one */
	u32 own_cwnd;	  /* packets: BBR's */
	u32 cwnd;	  /* packets: what the stack was given */
	u32 bw;		  /* BBR's bandwidth */
	u32 round;	  /* the round ends with a packet sent at this value of "delivered" */
	u32 round_lost;	  /* conn->lost when the round began */
	u32 round_max;	  /* packets: maximum in flight in the round */
	u32 inflight_cap; /* packets: bound of what is in flight; 0: none */
	u32 burst;	  /* << 8: part of a stall that may be made up for */
	u8 mode;	  /* enum cc_mode */
};

CC_INLINE void steady_init(struct cc_connection *conn, struct steady *st)
{
	st->checked_ns = conn->clock_ns;
	st->resumed_ns = conn->clock_ns;
	st->memory_ns = conn->clock_ns;
	st->snd_nxt = conn->snd_nxt;
	st->written = conn->snd_nxt + conn->unsent_bytes;
	st->burst = BBR_UNIT;
}

CC_INLINE u64 steady_longest_stall(const struct steady *st)
{
	return cc_max64(st->stall_ns[0], st->stall_ns[1]);
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

CC_INLINE void steady_forget(const struct cc_connection *conn, struct steady *st)
{
	u64 age = conn->clock_ns - st->memory_ns;
	u64 memory = (u64)steady_memory * 1000000;

	if (age < memory)
		return;
	st->stall_ns[1] = age < 2 * memory ? st->stall_ns[0] : 0;
	st->stall_ns[0] = 0;
	st->memory_ns = conn->clock_ns;
}

/* Rule 1: return the length of a stall that has just ended, or 0. in_flight is from before the
 * event. */
CC_INLINE u64 steady_stall(const struct cc_connection *conn, u32 in_flight, const struct steady *st)
{
	bool waited = (s32)(st->written - conn->snd_nxt) >= (s32)conn->mss;
	u64 late, half_gap;

	if (!st->own_rate || !waited || conn->app_limited || conn->receiver_room < conn->mss ||
	    in_flight + bbr_tso_segs_goal(conn) > conn->cwnd)
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

	steady_forget(conn, st);
	if (st->lag_ns && st->rate > st->own_rate) {
		u64 gained = steady_ns(sent, st->own_rate) - steady_ns(sent, st->rate);

		st->lag_ns -= cc_min64(gained, st->lag_ns);
	}
	if (stall) {
		st->stalls++;
		st->slot_ns = cc_max64(st->checked_ns - st->resumed_ns, 1);
		st->resumed_ns = conn->clock_ns;
		st->stall_ns[0] = cc_max64(st->stall_ns[0], stall);
		/* What a whole slot did not make up for is dropped: the window did not allow it. */
		st->lag_ns =
		    cc_min64(st->lag_ns + stall, steady_longest_stall(st) * st->burst >> BBR_SCALE);
	}
	st->round_max = cc_max(st->round_max, in_flight);
	st->checked_ns = conn->clock_ns;
	st->snd_nxt = conn->snd_nxt;
	st->written = conn->snd_nxt + conn->unsent_bytes;
}

/* Rule 2. PROBE_RTT wants an empty path, so the lag waits. */
CC_INLINE void steady_set_rate(struct cc_connection *conn, struct steady *st)
{
	u64 faster = BBR_UNIT;

	if (st->lag_ns && st->mode != CC_MODE_PROBE_RTT)
		faster += steady_longest_stall(st) * steady_haste / cc_max64(st->slot_ns, 1);
	faster = cc_min64(faster, (u64)steady_most << BBR_SCALE);
	st->rate = st->own_rate;
	if (faster > BBR_UNIT && st->own_rate < 1ULL << 40)
		st->rate = cc_min64(st->own_rate * faster >> BBR_SCALE, conn->max_pacing_rate);
	conn->pacing_rate = st->rate;
}

/* Rules 3 and 4. In recovery the stack sets the window by itself. */
CC_INLINE void steady_set_cwnd(struct cc_connection *conn, struct steady *st)
{
	u64 stall_us = (steady_longest_stall(st) * steady_window >> BBR_SCALE) / 1000;
	u64 ahead = st->bw * stall_us >> BBR_BW_SCALE;

	if (stall_us && st->mode != CC_MODE_PROBE_RTT && conn->ca_state < CC_CA_RECOVERY)
		conn->cwnd =
		    cc_max(conn->cwnd, (u32)cc_min64(conn->cwnd + ahead, conn->cwnd_clamp));
	if (st->inflight_cap)
		conn->cwnd = cc_min(conn->cwnd, st->inflight_cap);
	st->cwnd = conn->cwnd;
}

/* Rule 4, at the end of a round. */
CC_INLINE void steady_end_round(const struct cc_connection *conn, struct steady *st)
{
	u32 lost = conn->lost - st->round_lost;

	if (!steady_longest_stall(st)) {
		st->inflight_cap = 0;
		st->burst = BBR_UNIT;
	} else if ((u64)lost << 10 > (u64)st->round_max * steady_loss && steady_loss < 1024) {
		u32 delivered = st->round_max - cc_min(lost, st->round_max);
		u32 min = (u32)((u64)st->round_max * steady_beta >> BBR_SCALE);

		st->inflight_cap = cc_max(cc_max(delivered, min), 4);
		st->burst = cc_max(st->burst * steady_beta >> BBR_SCALE, 1);
	} else {
		/* A bound that was not reached has not been tested. */
		if (st->inflight_cap && st->round_max >= (u64)st->inflight_cap * 9 / 10)
			st->inflight_cap += cc_max((u64)st->inflight_cap * steady_growth >> 10, 1);
		st->burst = cc_min(st->burst + cc_max(steady_growth >> 2, 1), BBR_UNIT);
	}
	st->round = conn->delivered;
	st->round_lost = conn->lost;
	st->round_max = conn->in_flight;
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
	st->bw = model->bw;
	if (sample->delivered >= 0 && !cc_after(st->round, sample->prior_delivered))
		steady_end_round(conn, st);
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
