/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/*
 * BBR, version 1, as in mainline Linux (net/ipv4/tcp_bbr.c; draft-cardwell-iccrg-bbr-congestion-
 * control-00; Cardwell, Cheng, Gunn, Yeganeh, Jacobson, CACM 60(2), 2017).
 *
 * The model is two numbers: the bandwidth of the bottleneck, which is the maximum delivery rate of
 * the last ten rounds, and the round-trip time without queue, which is the minimum of the last ten
 * seconds. Each ACK updates the model, then sets pacing rate and cwnd from it.
 *
 *	STARTUP		doubles the rate each round, until the bandwidth no longer grows
 *	DRAIN		empties the queue that STARTUP has built
 *	PROBE_BW	paces at the bandwidth; one eighth of the time above, one below
 *	PROBE_RTT	every ten seconds: 200 ms with four packets, to see the RTT without queue
 *
 * The order of steps in bbr1_update_model() is part of the behaviour: the gain of the previous ACK
 * decides whether a phase of the gain cycle is over. Tests compare with the kernel ACK by ACK
 * (tests/test_cc_packets.py, and the shadow cc/hosts/bpf/bbr_shadow.bpf.c).
 *
 * Names here, and in the kernel's tcp_bbr.c:
 *
 *	cycle, cycle_us				cycle_idx, cycle_mstamp
 *	full_bw_rounds				full_bw_cnt
 *	round, round_delivered			rtt_cnt, next_rtt_delivered
 *	min_rtt_ticks, probe_rtt_ticks		min_rtt_stamp, probe_rtt_done_stamp
 *	aggregation_us, aggregation_acked	ack_epoch_mstamp, ack_epoch_acked
 *	extra_acked_rounds, extra_acked_half	extra_acked_win_rtts, extra_acked_win_idx
 *	policer_bw, uses_policer_bw		lt_bw, lt_use_bw
 *	in_policer_interval, policer_rounds	lt_is_sampling, lt_rtt_cnt
 *	policer_ms, _delivered, _lost		lt_last_stamp, lt_last_delivered, lt_last_lost
 *	bbr1_bw(), bbr1_max_bw()		bbr_bw(), bbr_max_bw()
 *	bbr1_quantize()				bbr_quantization_budget()
 *	bbr1_watch_for_policer()		bbr_lt_bw_sampling()
 */
#ifndef BROBUST_CC_BBR1_H
#define BROBUST_CC_BBR1_H

#include "bbr.h"

#define BBR1_CYCLE 8U /* phases of PROBE_BW */
#define BBR1_MAX_EXTRA_ACKED 0xfffffU

CC_PARAM(bbr1_high_gain, 739, 257, BBR_MAX_GAIN, CC_GAIN, "pacing and cwnd gain in STARTUP: 2/ln 2")
CC_PARAM(bbr1_drain_gain, 88, 1, 255, CC_GAIN, "pacing gain in DRAIN: the inverse")
CC_PARAM(bbr1_cwnd_gain, 512, 256, BBR_MAX_GAIN, CC_GAIN, "cwnd gain in PROBE_BW")
CC_PARAM(bbr1_probe_gain, 320, 256, BBR_MAX_GAIN, CC_GAIN,
	 "pacing gain of the phase that probes for more")
CC_PARAM(bbr1_probe_drain_gain, 192, 1, 256, CC_GAIN, "pacing gain of the phase after that")
CC_PARAM(bbr1_bw_window, 10, 1, 1000, CC_ROUNDS, "window of the bandwidth filter")
CC_PARAM(bbr1_min_rtt_window, 10, 1, 3600, CC_SECONDS, "window of the minimum RTT")
CC_PARAM(bbr1_probe_rtt, 200, 0, 10000, CC_MILLISECONDS, "length of PROBE_RTT; 0: no PROBE_RTT")
CC_PARAM(bbr1_min_cwnd, 4, 1, 1000, CC_PACKETS, "minimum cwnd, and cwnd in PROBE_RTT")
CC_PARAM(bbr1_full_bw_growth, 320, 257, BBR_MAX_GAIN, CC_GAIN,
	 "growth in a round that keeps STARTUP going")
CC_PARAM(bbr1_full_bw_rounds, 3, 1, 3, CC_ROUNDS, "rounds without such growth that end STARTUP")
CC_PARAM(bbr1_policer_detection, 1, 0, 1, CC_SWITCH, "look for token-bucket policers")
CC_PARAM(bbr1_policer_rounds, 4, 1, 31, CC_ROUNDS, "minimum length of a policer's interval")
CC_PARAM(bbr1_policer_loss, 50, 1, 255, CC_GAIN, "loss per delivery that suggests a policer")
CC_PARAM(bbr1_policer_ratio, 32, 0, 255, CC_GAIN,
	 "two intervals agree if their rates differ by at most this")
CC_PARAM(bbr1_policer_diff, 4000, 0, 1000000000, CC_BITS_PER_SECOND,
	 "or if their rates differ by at most this")
CC_PARAM(bbr1_policer_hold, 48, 1, 127, CC_ROUNDS, "how long a policer's rate is used")
CC_PARAM(bbr1_extra_acked_gain, 256, 0, BBR_MAX_GAIN, CC_GAIN,
	 "gain of the extra cwnd for aggregated ACKs")
CC_PARAM(bbr1_extra_acked_rounds, 5, 1, 31, CC_ROUNDS, "half of the window of aggregation")
CC_PARAM(bbr1_extra_acked_time, 100000, 0, 10000000, CC_MICROSECONDS,
	 "maximum of the extra cwnd, as time at the bandwidth")
CC_PARAM(bbr1_extra_acked_epoch, 1 << 20, 1, 1 << 20, CC_PACKETS,
	 "maximum length of an epoch of aggregation")

struct bbr1 {
	u64 cycle_us;	       /* µs: when this phase of PROBE_BW began */
	u64 aggregation_us;    /* µs: when this epoch of ACK aggregation began */
	struct bbr_max bw;     /* over rounds */
	u32 min_rtt_us;	       /* CC_NO_RTT: none yet */
	u32 min_rtt_ticks;     /* jiffies: when it was seen */
	u32 probe_rtt_ticks;   /* jiffies: when PROBE_RTT may end; 0: too much is in flight */
	u32 round;	       /* rounds since the beginning */
	u32 round_delivered;   /* the round ends with a packet sent at this value of "delivered" */
	u32 prior_cwnd;	       /* cwnd to go back to after recovery or PROBE_RTT */
	u32 full_bw;	       /* the last bandwidth in STARTUP that was enough growth */
	u32 aggregation_acked; /* packets, in this epoch */
	u32 policer_bw;	       /* rate of the last interval, or 0 */
	u32 policer_ms;	       /* ms, wrapping: when this interval began */
	u32 policer_delivered;
	u32 policer_lost;
	u16 extra_acked[2]; /* packets: maximum in either half of the window */
	u16 pacing_gain;    /* << 8 */
	u16 cwnd_gain;	    /* << 8 */
	u8 mode;	    /* enum cc_mode, one of the first four */
	u8 prev_ca_state;   /* enum cc_ca_state at the previous ACK */
	u8 cycle;	    /* phase of PROBE_BW: 0 probes, 1 drains what probing added */
	u8 full_bw_rounds;
	u8 policer_rounds;
	u8 extra_acked_rounds; /* of this half of the window */
	u8 extra_acked_half;   /* index of extra_acked */
	bool round_start;      /* this ACK begins a round */
	bool packet_conservation;
	bool probe_rtt_round_done;
	bool idle_restart; /* sending after silence, without an ACK yet */
	bool has_seen_rtt;
	bool full_bw_reached;
	bool in_policer_interval;
	bool uses_policer_bw;
};

/* Return whether this ACK ends a phase of PROBE_BW. bbq.h has its own function for it. */
#ifndef BBR1_IS_PHASE_OVER
#define BBR1_IS_PHASE_OVER bbr1_is_phase_over
#endif
static bool BBR1_IS_PHASE_OVER(const struct cc_connection *conn, const struct cc_sample *sample,
			       const struct bbr1 *bbr);

CC_INLINE u32 bbr1_max_bw(const struct bbr1 *bbr)
{
	return bbr->bw.best[0].value;
}

CC_INLINE u32 bbr1_bw(const struct bbr1 *bbr)
{
	return bbr->uses_policer_bw ? bbr->policer_bw : bbr1_max_bw(bbr);
}

CC_INLINE bool bbr1_has_sample(const struct cc_sample *sample)
{
	return sample->delivered >= 0 && sample->interval_us > 0;
}

/*
 * Add room for what end hosts hold: a burst in the queueing discipline, one in segmentation, one in
 * the receiver's aggregation; round up to an even number for delayed ACKs; and while probing add
 * two more, so that even the smallest window probes.
 */
CC_INLINE u32 bbr1_quantize(const struct cc_connection *conn, const struct bbr1 *bbr, u32 cwnd)
{
	cwnd += 3 * bbr_tso_segs_goal(conn);
	cwnd = (cwnd + 1) & ~1U;
	if (bbr->mode == CC_MODE_PROBE_BW && bbr->cycle == 0)
		cwnd += 2;
	return cwnd;
}

CC_INLINE u32 bbr1_inflight(const struct cc_connection *conn, const struct bbr1 *bbr, u32 gain)
{
	return bbr1_quantize(conn, bbr, bbr_bdp(bbr1_max_bw(bbr), bbr->min_rtt_us, gain));
}

CC_INLINE u32 bbr1_at_departure(const struct cc_connection *conn, const struct bbr1 *bbr,
				u32 flight)
{
	return bbr_inflight_at_departure(conn, flight, bbr1_bw(bbr), bbr->pacing_gain,
					 bbr_tso_segs_goal(conn));
}

/* --- pacing rate ----------------------------------------------------------------------------- */

/* Before the first estimate: STARTUP's gain times the initial window per RTT, or per 1 ms. */
static void bbr1_first_pacing_rate(struct cc_connection *conn, struct bbr1 *bbr)
{
	u32 rtt_us = CC_USEC_PER_MSEC;

	if (conn->srtt_us_8) {
		rtt_us = cc_max(conn->srtt_us_8 >> 3, 1);
		bbr->has_seen_rtt = true;
	}
	conn->pacing_rate =
	    bbr_pacing_rate(conn, (u32)((u64)conn->cwnd * BBR_BW_UNIT / rtt_us), bbr1_high_gain);
}

/* While STARTUP fills the pipe, the rate never falls: its samples come later than its growth. */
static void bbr1_set_pacing_rate(struct cc_connection *conn, struct bbr1 *bbr, u32 gain)
{
	u64 rate = bbr_pacing_rate(conn, bbr1_bw(bbr), gain);

	if (!bbr->has_seen_rtt && conn->srtt_us_8)
		bbr1_first_pacing_rate(conn, bbr);
	if (bbr->full_bw_reached || rate > conn->pacing_rate)
		conn->pacing_rate = rate;
}

/* --- modes ----------------------------------------------------------------------------------- */

/* A cycle begins at a random phase but the one that drains, so that flows do not stay in step. */
static void bbr1_enter_probe_bw(struct cc_connection *conn, struct bbr1 *bbr)
{
	bbr->mode = CC_MODE_PROBE_BW;
	bbr->cycle = (BBR1_CYCLE - cc_random_below(conn, BBR1_CYCLE - 1)) & (BBR1_CYCLE - 1);
	bbr->cycle_us = conn->delivered_us;
}

static void bbr1_leave_probe_rtt(struct cc_connection *conn, struct bbr1 *bbr)
{
	if (!bbr->probe_rtt_ticks || !cc_after(conn->now_ticks, bbr->probe_rtt_ticks))
		return;
	bbr->min_rtt_ticks = conn->now_ticks;
	conn->cwnd = cc_max(conn->cwnd, bbr->prior_cwnd);
	if (bbr->full_bw_reached)
		bbr1_enter_probe_bw(conn, bbr);
	else
		bbr->mode = CC_MODE_STARTUP;
}

/* Called before recovery or PROBE_RTT cuts cwnd. If one has already begun, keep the larger cwnd. */
static void bbr1_save_cwnd(const struct cc_connection *conn, struct bbr1 *bbr)
{
	bool cut = bbr->prev_ca_state >= CC_CA_RECOVERY || bbr->mode == CC_MODE_PROBE_RTT;

	bbr->prior_cwnd = cut ? cc_max(bbr->prior_cwnd, conn->cwnd) : conn->cwnd;
}

/* --- policers: a token bucket lets a burst pass, then drops everything above its rate
 * ---------- */

static void bbr1_begin_policer_interval(const struct cc_connection *conn, struct bbr1 *bbr)
{
	bbr->policer_ms = (u32)(conn->delivered_us / CC_USEC_PER_MSEC);
	bbr->policer_delivered = conn->delivered;
	bbr->policer_lost = conn->lost;
	bbr->policer_rounds = 0;
}

static void bbr1_forget_policer(const struct cc_connection *conn, struct bbr1 *bbr)
{
	bbr->policer_bw = 0;
	bbr->uses_policer_bw = false;
	bbr->in_policer_interval = false;
	bbr1_begin_policer_interval(conn, bbr);
}

/* Two lossy intervals in a row with about the same rate show a policer of that rate. */
static void bbr1_end_policer_interval(const struct cc_connection *conn, struct bbr1 *bbr, u32 bw)
{
	u32 previous = bbr->policer_bw;
	u32 apart = bw > previous ? bw - previous : previous - bw;

	if (previous && (apart * BBR_UNIT <= bbr1_policer_ratio * previous ||
			 bbr_bytes_per_second(conn, apart, BBR_UNIT) <= bbr1_policer_diff / 8)) {
		bbr->policer_bw = (bw + previous) >> 1;
		bbr->uses_policer_bw = true;
		bbr->pacing_gain = BBR_UNIT; /* at once: the policer would drop what probes */
		bbr->policer_rounds = 0;
		return;
	}
	bbr->policer_bw = bw;
	bbr1_begin_policer_interval(conn, bbr);
}

static void bbr1_watch_for_policer(struct cc_connection *conn, bool lossy, bool app_limited,
				   struct bbr1 *bbr)
{
	u32 delivered, lost, ms;

	if (bbr->uses_policer_bw) {
		if (bbr->mode == CC_MODE_PROBE_BW && bbr->round_start &&
		    ++bbr->policer_rounds >= bbr1_policer_hold) {
			bbr1_forget_policer(conn, bbr); /* check whether it is still there */
			bbr1_enter_probe_bw(conn, bbr);
		}
		return;
	}
	/* Intervals begin and end with a loss, when the bucket is empty, so its burst does not
	 * count. */
	if (!bbr->in_policer_interval) {
		if (!lossy || !bbr1_policer_detection)
			return;
		bbr1_begin_policer_interval(conn, bbr);
		bbr->in_policer_interval = true;
	}
	if (app_limited) {
		bbr1_forget_policer(conn, bbr);
		return;
	}
	if (bbr->round_start)
		bbr->policer_rounds = (bbr->policer_rounds + 1) & 0x7f;
	if (bbr->policer_rounds < bbr1_policer_rounds)
		return;
	if (bbr->policer_rounds > 4 * bbr1_policer_rounds) {
		bbr1_forget_policer(conn, bbr);
		return;
	}
	if (!lossy)
		return;
	lost = conn->lost - bbr->policer_lost;
	delivered = conn->delivered - bbr->policer_delivered;
	if (!delivered || lost << BBR_SCALE < bbr1_policer_loss * delivered)
		return;
	ms = (u32)(conn->delivered_us / CC_USEC_PER_MSEC) - bbr->policer_ms;
	if ((s32)ms < 1)
		return;
	if (ms >= ~0U / CC_USEC_PER_MSEC) {
		bbr1_forget_policer(conn, bbr);
		return;
	}
	bbr1_end_policer_interval(conn, bbr,
				  (u32)((u64)delivered * BBR_BW_UNIT / (ms * CC_USEC_PER_MSEC)));
}

/* --- the model ------------------------------------------------------------------------------- */

static void bbr1_update_bw(struct cc_connection *conn, const struct cc_sample *sample,
			   struct bbr1 *bbr)
{
	u64 bw;

	bbr->round_start = false;
	if (!bbr1_has_sample(sample))
		return;

	/* A round is over when a packet that was sent after its beginning is acknowledged. */
	if (!cc_after(bbr->round_delivered, sample->prior_delivered)) {
		bbr->round_delivered = conn->delivered;
		bbr->round++;
		bbr->round_start = true;
		bbr->packet_conservation = false;
	}
	bbr1_watch_for_policer(conn, sample->losses != 0, sample->is_app_limited, bbr);

	/* A sample that the application limited counts only if it is above the known maximum. */
	bw = (u64)sample->delivered * BBR_BW_UNIT / (u64)sample->interval_us;
	if (!sample->is_app_limited || bw >= bbr1_max_bw(bbr))
		bbr_max_update(&bbr->bw, bbr1_bw_window, bbr->round, (u32)bw);
}

/*
 * ACKs that come in bunches (radio links, offloads) leave gaps in which cwnd runs out. What was
 * acknowledged beyond bandwidth times time, the maximum of five to ten rounds, is added to cwnd.
 */
static void bbr1_update_aggregation(const struct cc_connection *conn,
				    const struct cc_sample *sample, struct bbr1 *bbr)
{
	u32 expected, extra;

	if (!bbr1_extra_acked_gain || !sample->acked_sacked || !bbr1_has_sample(sample))
		return;
	if (bbr->round_start) {
		bbr->extra_acked_rounds = (u8)cc_min(bbr->extra_acked_rounds + 1, 31);
		if (bbr->extra_acked_rounds >= bbr1_extra_acked_rounds) {
			bbr->extra_acked_rounds = 0;
			bbr->extra_acked_half = !bbr->extra_acked_half;
			bbr->extra_acked[bbr->extra_acked_half & 1] = 0;
		}
	}
	expected = (u32)((u64)bbr1_bw(bbr) * cc_us_since(conn->delivered_us, bbr->aggregation_us) >>
			 BBR_BW_SCALE);
	if (bbr->aggregation_acked <= expected ||
	    bbr->aggregation_acked + sample->acked_sacked >= bbr1_extra_acked_epoch) {
		bbr->aggregation_acked = 0;
		bbr->aggregation_us = conn->delivered_us;
		expected = 0;
	}
	bbr->aggregation_acked =
	    cc_min(BBR1_MAX_EXTRA_ACKED, bbr->aggregation_acked + sample->acked_sacked);
	extra = cc_min(bbr->aggregation_acked - expected, conn->cwnd);
	if (extra > bbr->extra_acked[bbr->extra_acked_half & 1])
		bbr->extra_acked[bbr->extra_acked_half & 1] = (u16)extra;
}

static bool bbr1_is_phase_over(const struct cc_connection *conn, const struct cc_sample *sample,
			       const struct bbr1 *bbr)
{
	bool full_length = cc_us_since(conn->delivered_us, bbr->cycle_us) > bbr->min_rtt_us;
	u32 inflight;

	if (bbr->pacing_gain == BBR_UNIT)
		return full_length;
	inflight = bbr1_at_departure(conn, bbr, sample->prior_in_flight);
	/* Probing is over when what it adds is in flight, or when there is no room for that. */
	if (bbr->pacing_gain > BBR_UNIT)
		return full_length &&
		       (sample->losses || inflight >= bbr1_inflight(conn, bbr, bbr->pacing_gain));
	/* Draining is over when what probing added is gone. */
	return full_length || inflight <= bbr1_inflight(conn, bbr, BBR_UNIT);
}

static void bbr1_update_cycle(const struct cc_connection *conn, const struct cc_sample *sample,
			      struct bbr1 *bbr)
{
	if (bbr->mode != CC_MODE_PROBE_BW || !BBR1_IS_PHASE_OVER(conn, sample, bbr))
		return;
	bbr->cycle = (bbr->cycle + 1) & (BBR1_CYCLE - 1);
	bbr->cycle_us = conn->delivered_us;
}

static void bbr1_check_full_bw(const struct cc_sample *sample, struct bbr1 *bbr)
{
	u32 bw = bbr1_max_bw(bbr);

	if (bbr->full_bw_reached || !bbr->round_start || sample->is_app_limited)
		return;
	if (bw >= (u32)((u64)bbr->full_bw * bbr1_full_bw_growth >> BBR_SCALE)) {
		bbr->full_bw = bw;
		bbr->full_bw_rounds = 0;
		return;
	}
	bbr->full_bw_rounds++;
	bbr->full_bw_reached = bbr->full_bw_rounds >= bbr1_full_bw_rounds;
}

static void bbr1_check_drain(struct cc_connection *conn, struct bbr1 *bbr)
{
	if (bbr->mode == CC_MODE_STARTUP && bbr->full_bw_reached) {
		bbr->mode = CC_MODE_DRAIN;
		conn->ssthresh = bbr1_inflight(conn, bbr, BBR_UNIT); /* shown to users, not used */
	}
	if (bbr->mode == CC_MODE_DRAIN &&
	    bbr1_at_departure(conn, bbr, conn->in_flight) <= bbr1_inflight(conn, bbr, BBR_UNIT))
		bbr1_enter_probe_bw(conn, bbr);
}

static void bbr1_update_min_rtt(struct cc_connection *conn, const struct cc_sample *sample,
				struct bbr1 *bbr)
{
	bool expired =
	    cc_after(conn->now_ticks, bbr->min_rtt_ticks + bbr1_min_rtt_window * conn->tick_hz);

	if (sample->rtt_us >= 0 &&
	    (sample->rtt_us < bbr->min_rtt_us || (expired && !sample->is_ack_delayed))) {
		bbr->min_rtt_us = (u32)sample->rtt_us;
		bbr->min_rtt_ticks = conn->now_ticks;
	}
	if (bbr1_probe_rtt && expired && !bbr->idle_restart && bbr->mode != CC_MODE_PROBE_RTT) {
		bbr->mode = CC_MODE_PROBE_RTT;
		bbr1_save_cwnd(conn, bbr);
		bbr->probe_rtt_ticks = 0;
	}
	if (bbr->mode == CC_MODE_PROBE_RTT) {
		/* These samples show our rate, not the path's. */
		conn->app_limited = conn->delivered + conn->in_flight;
		if (!conn->app_limited)
			conn->app_limited = 1;
		if (!bbr->probe_rtt_ticks && conn->in_flight <= bbr1_min_cwnd) {
			bbr->probe_rtt_ticks =
			    conn->now_ticks + cc_ms_to_ticks(conn, bbr1_probe_rtt);
			bbr->probe_rtt_round_done = false;
			bbr->round_delivered = conn->delivered;
		} else if (bbr->probe_rtt_ticks) {
			if (bbr->round_start)
				bbr->probe_rtt_round_done = true;
			if (bbr->probe_rtt_round_done)
				bbr1_leave_probe_rtt(conn, bbr);
		}
	}
	if (sample->delivered > 0)
		bbr->idle_restart = false;
}

static void bbr1_update_gains(struct bbr1 *bbr)
{
	switch (bbr->mode) {
	case CC_MODE_STARTUP:
		bbr->pacing_gain = bbr1_high_gain;
		bbr->cwnd_gain = bbr1_high_gain;
		break;
	case CC_MODE_DRAIN:
		bbr->pacing_gain = bbr1_drain_gain;
		bbr->cwnd_gain = bbr1_high_gain;
		break;
	case CC_MODE_PROBE_BW:
		bbr->pacing_gain = BBR_UNIT;
		if (!bbr->uses_policer_bw && bbr->cycle == 0)
			bbr->pacing_gain = bbr1_probe_gain;
		else if (!bbr->uses_policer_bw && bbr->cycle == 1)
			bbr->pacing_gain = bbr1_probe_drain_gain;
		bbr->cwnd_gain = bbr1_cwnd_gain;
		break;
	case CC_MODE_PROBE_RTT:
		bbr->pacing_gain = BBR_UNIT;
		bbr->cwnd_gain = BBR_UNIT;
		break;
	}
}

static void bbr1_update_model(struct cc_connection *conn, const struct cc_sample *sample,
			      struct bbr1 *bbr)
{
	bbr1_update_bw(conn, sample, bbr);
	bbr1_update_aggregation(conn, sample, bbr);
	bbr1_update_cycle(conn, sample, bbr);
	bbr1_check_full_bw(sample, bbr);
	bbr1_check_drain(conn, bbr);
	bbr1_update_min_rtt(conn, sample, bbr);
	bbr1_update_gains(bbr);
}

/* --- cwnd ------------------------------------------------------------------------------------ */

CC_INLINE u32 bbr1_aggregation_cwnd(const struct bbr1 *bbr)
{
	u32 max = (u32)((u64)bbr1_bw(bbr) * bbr1_extra_acked_time >> BBR_BW_SCALE);
	u32 extra = cc_max(bbr->extra_acked[0], bbr->extra_acked[1]);

	if (!bbr->full_bw_reached)
		return 0;
	return cc_min(bbr1_extra_acked_gain * extra >> BBR_SCALE, max);
}

/*
 * Recovery: in its first round as many packets leave as are known to have arrived, from then on at
 * most twice as many; at its end cwnd goes back to its earlier value. Return true where this alone
 * decides.
 */
static bool bbr1_recover(const struct cc_connection *conn, const struct cc_sample *sample,
			 struct bbr1 *bbr, u32 *cwnd)
{
	bool was_recovering = bbr->prev_ca_state >= CC_CA_RECOVERY;

	if (sample->losses > 0 && (s32)(*cwnd -= (u32)sample->losses) < 1)
		*cwnd = 1;
	if (conn->ca_state == CC_CA_RECOVERY && bbr->prev_ca_state != CC_CA_RECOVERY) {
		bbr->packet_conservation = true;
		bbr->round_delivered = conn->delivered; /* the first round begins now */
		*cwnd = conn->in_flight + sample->acked_sacked;
	} else if (was_recovering && conn->ca_state < CC_CA_RECOVERY) {
		*cwnd = cc_max(*cwnd, bbr->prior_cwnd);
		bbr->packet_conservation = false;
	}
	bbr->prev_ca_state = conn->ca_state;
	if (bbr->packet_conservation)
		*cwnd = cc_max(*cwnd, conn->in_flight + sample->acked_sacked);
	return bbr->packet_conservation;
}

static void bbr1_set_cwnd(struct cc_connection *conn, const struct cc_sample *sample,
			  struct bbr1 *bbr)
{
	u32 acked = sample->acked_sacked;
	u32 cwnd = conn->cwnd;

	if (acked && !bbr1_recover(conn, sample, bbr, &cwnd)) {
		u32 target = bbr_bdp(bbr1_bw(bbr), bbr->min_rtt_us, bbr->cwnd_gain);

		target = bbr1_quantize(conn, bbr, target + bbr1_aggregation_cwnd(bbr));
		/* A window is only cut once the pipe has been full. */
		if (bbr->full_bw_reached)
			cwnd = cc_min(cwnd + acked, target);
		else if (cwnd < target || conn->delivered < CC_INIT_CWND)
			cwnd += acked;
		cwnd = cc_max(cwnd, bbr1_min_cwnd);
	}
	conn->cwnd = cc_min(cwnd, conn->cwnd_clamp);
	if (bbr->mode == CC_MODE_PROBE_RTT)
		conn->cwnd = cc_min(conn->cwnd, bbr1_min_cwnd);
}

/* --- what the stack calls -------------------------------------------------------------------- */

static void bbr1_on_ack(struct cc_connection *conn, const struct cc_sample *sample,
			struct bbr1 *bbr)
{
	bbr1_update_model(conn, sample, bbr);
	bbr1_set_pacing_rate(conn, bbr, bbr->pacing_gain);
	bbr1_set_cwnd(conn, sample, bbr);
}

static void bbr1_init(struct cc_connection *conn, struct bbr1 *bbr)
{
	conn->ssthresh = CC_INFINITE_SSTHRESH;
	conn->wants_pacing = 1;
	bbr->mode = CC_MODE_STARTUP;
	bbr->round_delivered = conn->delivered;
	bbr->min_rtt_us = conn->min_rtt_us;
	bbr->min_rtt_ticks = conn->now_ticks;
	bbr->aggregation_us = conn->now_us;
	bbr1_begin_policer_interval(conn, bbr);
	bbr1_first_pacing_rate(conn, bbr);
}

/* After silence, pace at the bandwidth: what the path carries is known. */
static void bbr1_on_event(struct cc_connection *conn, u32 event, struct bbr1 *bbr)
{
	if (event != CC_EVENT_TX_START || !conn->app_limited)
		return;
	bbr->idle_restart = true;
	bbr->aggregation_us = conn->now_us;
	bbr->aggregation_acked = 0;
	if (bbr->mode == CC_MODE_PROBE_BW)
		bbr1_set_pacing_rate(conn, bbr, BBR_UNIT);
	else if (bbr->mode == CC_MODE_PROBE_RTT)
		bbr1_leave_probe_rtt(conn, bbr);
}

/* A retransmission timeout ends a round, and STARTUP has to grow again. */
static void bbr1_set_state(struct cc_connection *conn, u8 state, struct bbr1 *bbr)
{
	if (state != CC_CA_LOSS)
		return;
	bbr->prev_ca_state = CC_CA_LOSS;
	bbr->full_bw = 0;
	bbr->round_start = true;
	bbr1_watch_for_policer(conn, true, false, bbr);
}

static u32 bbr1_ssthresh(const struct cc_connection *conn, struct bbr1 *bbr)
{
	bbr1_save_cwnd(conn, bbr);
	return conn->ssthresh;
}

/* Nothing was lost, so the effect on the search for full bandwidth is undone. */
static u32 bbr1_undo_cwnd(const struct cc_connection *conn, struct bbr1 *bbr)
{
	bbr->full_bw = 0;
	bbr->full_bw_rounds = 0;
	bbr1_forget_policer(conn, bbr);
	return conn->cwnd;
}

CC_INLINE void bbr1_model(const struct bbr1 *bbr, struct bbr_model *model)
{
	model->bw = bbr1_bw(bbr);
	model->min_rtt_us = bbr->min_rtt_us;
	model->pacing_gain = bbr->pacing_gain;
	model->high_gain = bbr1_high_gain;
	model->mode = bbr->mode;
}

CC_INLINE void bbr1_report(const struct cc_connection *conn, const struct bbr1 *bbr,
			   struct cc_report *report)
{
	report->bandwidth = bbr_bw_for_users(conn, bbr1_bw(bbr));
	report->min_rtt_us = bbr->min_rtt_us;
	report->pacing_gain = bbr->pacing_gain;
	report->cwnd_gain = bbr->cwnd_gain;
	report->mode = bbr->mode;
}

#endif
