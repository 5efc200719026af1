/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/*
 * BBR, version 3: google's code (github.com/google/bbr, branch v3), and the draft that describes it
 * (draft-ietf-ccwg-bbr; "section" below means the draft's). bbr2.h is version 2.
 *
 * As version 1 it keeps the bandwidth of the path and its round-trip time without queue, and paces
 * by them. Beside that it learns from loss how much the path holds:
 *
 *	bw_hi, inflight_hi	the most that was seen to work: long-term bounds, raised by probing
 *	bw_lo, inflight_lo	short-term bounds, cut by losses outside of probing, dropped by it
 *
 * (the draft: max_bw, inflight_longterm, bw_shortterm, inflight_shortterm). Probing is rare, every
 * two to three seconds, or sooner where a Reno flow of this size would:
 *
 *	PROBE_BW_DOWN	below the bandwidth, until in flight is less than the path and leaves room
 *	PROBE_BW_CRUISE	at the bandwidth
 *	PROBE_BW_REFILL	one round at the bandwidth without short-term bounds: fill the pipe, no
 *queue PROBE_BW_UP	above the bandwidth, until it grows no more or losses pass 2 %
 *
 * PROBE_RTT comes every five seconds, at half a BDP instead of four packets.
 *
 * What the stack that google's code needs tells and mainline's does not, is derived, alike in every
 * host:
 *	- packets in flight when a packet was sent: those delivered from then to its own delivery,
 *	  and those lost meanwhile (on a path that keeps the order it is the same);
 *	- packets lost since it was sent: from the steps of the connection's count of losses;
 *	- which packet was lost: losses are seen once per ACK, so the point at which they pass the
 *	  threshold is found within those of an ACK and not within one burst.
 * Left out: ECN, which needs a route's consent; protective load balancing; the losses that a tail
 * loss probe repairs; and the shortcut for application-limited ACKs, which only saves time.
 */
#ifndef BROBUST_CC_BBR3_H
#define BROBUST_CC_BBR3_H

#include "bbr.h"

#define BBR3_UNSET (~0U) /* a bound that is not known */
#define BBR3_LOSS_STEPS 16U
#define BBR3_MOST_ROUNDS_SINCE_PROBE 255U
#define BBR3_MOST_UP_ROUNDS 30U
#define BBR3_TSO_RTT_SHIFT 9

/* Where version 2 and the draft have other values; bbr2.h and brb_bbr3_draft.c define them first.
 */
#ifndef BBR3_STARTUP_PACING_GAIN
#define BBR3_STARTUP_PACING_GAIN 710
#endif
#ifndef BBR3_STARTUP_CWND_GAIN
#define BBR3_STARTUP_CWND_GAIN 512
#endif
#ifndef BBR3_DRAIN_GAIN
#define BBR3_DRAIN_GAIN 88
#endif
#ifndef BBR3_DRAIN_ROUNDS
#define BBR3_DRAIN_ROUNDS 0
#endif
#ifndef BBR3_DOWN_GAIN
#define BBR3_DOWN_GAIN 232
#endif
#ifndef BBR3_UP_CWND_GAIN
#define BBR3_UP_CWND_GAIN 576
#endif
#ifndef BBR3_STARTUP_LOSSES
#define BBR3_STARTUP_LOSSES 6
#endif
#ifndef BBR3_UP_UNTIL_PLATEAU
#define BBR3_UP_UNTIL_PLATEAU 1
#endif
#ifndef BBR3_GROWTH_EACH_ACK
#define BBR3_GROWTH_EACH_ACK 1
#endif
#ifndef BBR3_STARTUP_KEEPS_INFLIGHT
#define BBR3_STARTUP_KEEPS_INFLIGHT 1
#endif
#ifndef BBR3_LATEST_AT_END
#define BBR3_LATEST_AT_END 1
#endif

CC_PARAM(bbr3_startup_pacing_gain, BBR3_STARTUP_PACING_GAIN, 257, BBR_MAX_GAIN, CC_GAIN,
	 "pacing in STARTUP: 4 ln 2")
CC_PARAM(bbr3_startup_cwnd_gain, BBR3_STARTUP_CWND_GAIN, 257, BBR_MAX_GAIN, CC_GAIN,
	 "cwnd in STARTUP and DRAIN")
CC_PARAM(bbr3_drain_gain, BBR3_DRAIN_GAIN, 1, 255, CC_GAIN, "pacing in DRAIN")
CC_PARAM(bbr3_drain_rounds, BBR3_DRAIN_ROUNDS, 0, 100, CC_ROUNDS, "longest DRAIN; 0: no limit")
CC_PARAM(bbr3_up_gain, 320, 257, BBR_MAX_GAIN, CC_GAIN, "pacing in PROBE_BW_UP")
CC_PARAM(bbr3_down_gain, BBR3_DOWN_GAIN, 1, 256, CC_GAIN, "pacing in PROBE_BW_DOWN")
CC_PARAM(bbr3_cwnd_gain, 512, 256, BBR_MAX_GAIN, CC_GAIN, "cwnd in PROBE_BW")
CC_PARAM(bbr3_up_cwnd_gain, BBR3_UP_CWND_GAIN, 256, BBR_MAX_GAIN, CC_GAIN, "cwnd in PROBE_BW_UP")
CC_PARAM(bbr3_min_cwnd, 4, 1, 1000, CC_PACKETS, "least cwnd")
CC_PARAM(bbr3_loss_threshold, 5, 1, 128, CC_GAIN, "loss above this is too much: 2 %")
CC_PARAM(bbr3_beta, 76, 1, 255, CC_GAIN, "cut of a bound on loss: 30 %")
CC_PARAM(bbr3_headroom, 38, 0, 255, CC_GAIN, "of inflight_hi left to others: 15 %")
CC_PARAM(bbr3_startup_losses, BBR3_STARTUP_LOSSES, 0, 15, CC_TIMES,
	 "ACKs with losses in a round that end STARTUP; 0: none do")
CC_PARAM(bbr3_full_bw_growth, 320, 257, BBR_MAX_GAIN, CC_GAIN, "growth that goes on")
CC_PARAM(bbr3_full_bw_rounds, 3, 1, 15, CC_ROUNDS, "rounds without it: the pipe is full")
CC_PARAM(bbr3_probe_base, 2000000, 0, 60000000, CC_MICROSECONDS, "least time between probes")
CC_PARAM(bbr3_probe_random, 1000000, 1, 60000000, CC_MICROSECONDS, "and at most so much more")
CC_PARAM(bbr3_probe_rounds, 63, 1, 255, CC_ROUNDS, "probe after so many rounds at the latest")
CC_PARAM(bbr3_min_rtt_window, 10, 1, 3600, CC_SECONDS, "window of the minimum RTT")
CC_PARAM(bbr3_probe_rtt_interval, 5000, 1, 3600000, CC_MILLISECONDS, "PROBE_RTT comes after it")
CC_PARAM(bbr3_probe_rtt, 200, 0, 10000, CC_MILLISECONDS, "length of PROBE_RTT; 0 is never")
CC_PARAM(bbr3_probe_rtt_cwnd_gain, 128, 1, 256, CC_GAIN, "cwnd in PROBE_RTT")
CC_PARAM(bbr3_extra_acked_gain, 256, 0, BBR_MAX_GAIN, CC_GAIN, "cwnd for aggregated ACKs")
CC_PARAM(bbr3_extra_acked_rounds, 5, 1, 31, CC_ROUNDS, "half the window of aggregation")
CC_PARAM(bbr3_extra_acked_time, 100000, 0, 10000000, CC_MICROSECONDS, "most of it, at bandwidth")
CC_PARAM(bbr3_up_until_plateau, BBR3_UP_UNTIL_PLATEAU, 0, 1, CC_SWITCH,
	 "PROBE_BW_UP ends when bandwidth no longer grows; off: with 1.25 BDP in flight")
CC_PARAM(bbr3_growth_each_ack, BBR3_GROWTH_EACH_ACK, 0, 1, CC_SWITCH,
	 "look for growth at every ACK; off: once a round")

/* Which probe the samples that come in now are of (the draft: ack_phase). */
enum bbr3_ack_phase {
	BBR3_ACKS_INIT,		  /* none */
	BBR3_ACKS_REFILLING,	  /* sent in REFILL */
	BBR3_ACKS_PROBE_STARTING, /* UP has begun, its packets are not back yet */
	BBR3_ACKS_PROBE_FEEDBACK, /* sent in UP */
	BBR3_ACKS_PROBE_STOPPING, /* UP is over, its packets still come back */
};

struct bbr3 {
	u64 cycle_us;	    /* µs: when this phase of PROBE_BW began */
	u64 aggregation_us; /* µs: when this epoch of ACK aggregation began */
	struct {
		u32 delivered; /* at this value of conn->delivered */
		u32 lost;      /* conn->lost had been that until then */
	} loss_steps[BBR3_LOSS_STEPS];
	u32 loss_step; /* index of the next */
	u32 lost;      /* conn->lost at the last ACK */

	u32 bw_hi[2];			     /* most of the former cycle and of this one */
	u32 bw_lo, inflight_hi, inflight_lo; /* BBR3_UNSET: no bound */
	u32 bw_latest, inflight_latest;	     /* most of this round */
	u32 undo_bw_lo, undo_inflight_lo, undo_inflight_hi;
	u32 min_rtt_us, min_rtt_ticks;		   /* over 10 s */
	u32 probe_rtt_min_us, probe_rtt_min_ticks; /* over 5 s */
	u32 probe_rtt_ticks; /* jiffies: when PROBE_RTT may end; 0: in flight is still too much */
	u32 round_delivered, loss_round_delivered; /* a round ends with a packet sent then */
	u32 prior_cwnd, init_cwnd;
	u32 full_bw; /* bandwidth last grown to */
	u32 aggregation_acked;
	u32 probe_wait_us;
	u32 rounds_since_probe;
	u32 up_per_packet; /* in UP: packets acknowledged per packet that inflight_hi grows */
	u32 up_acked;
	u16 extra_acked[2];
	u16 pacing_gain, cwnd_gain; /* << 8 */
	u8 mode;      /* enum cc_mode: STARTUP, DRAIN, PROBE_RTT and the four of PROBE_BW */
	u8 ack_phase; /* enum bbr3_ack_phase */
	u8 prev_ca_state;
	u8 up_rounds;
	u8 full_bw_rounds;
	u8 drain_rounds;
	u8 loss_events; /* ACKs with losses in this round */
	u8 extra_acked_age, extra_acked_half;
	bool round_start, loss_round_start;
	bool full_bw_now;     /* no growth of late */
	bool full_bw_reached; /* ... ever: STARTUP is over */
	bool loss_in_round;
	bool probe_samples; /* samples show what probing does */
	bool prev_probe_too_high;
	bool stopped_risky_probe; /* UP ended at inflight_hi before it was seen to be too much */
	bool probe_rtt_round_done;
	bool idle_restart;
	bool has_seen_rtt;
};

/* What this ACK tells beyond its sample. */
struct bbr3_ack {
	u32 bw;		  /* of the sample; 0: none */
	u32 lost;	  /* packets lost since the newest acknowledged one was sent */
	u32 tx_in_flight; /* packets in flight when it was sent, itself included; 0: unknown */
};

/* --- the model's values ------------------------------------------------------------------------
 */

CC_INLINE u32 bbr3_max_bw(const struct bbr3 *bbr)
{
	return cc_max(bbr->bw_hi[0], bbr->bw_hi[1]);
}

CC_INLINE u32 bbr3_bw(const struct bbr3 *bbr)
{
	return cc_min(bbr3_max_bw(bbr), bbr->bw_lo);
}

CC_INLINE bool bbr3_has_sample(const struct cc_sample *sample)
{
	return sample->delivered >= 0 && sample->interval_us > 0 && sample->acked_sacked;
}

/* A burst as the stack sizes it: 1 ms of data, and more where the RTT is short. */
CC_INLINE u32 bbr3_burst(const struct cc_connection *conn, const struct bbr3 *bbr)
{
	u64 bytes = conn->pacing_rate >> conn->pacing_shift;
	u32 halvings = bbr->min_rtt_us >> BBR3_TSO_RTT_SHIFT;

	if (halvings < 32)
		bytes += 65536U >> halvings;
	bytes = cc_min64(bytes, conn->tso_max_bytes);
	return cc_max((u32)bytes / conn->mss, bbr_min_burst(conn->pacing_rate));
}

/* Section 5.6.4.2 (BBRQuantizationBudget): room for three bursts, and a little more to probe. */
CC_INLINE u32 bbr3_quantize(const struct cc_connection *conn, const struct bbr3 *bbr, u32 cwnd)
{
	cwnd = cc_max(cwnd, 3 * bbr3_burst(conn, bbr));
	cwnd = cc_max(cwnd, bbr3_min_cwnd);
	return bbr->mode == CC_MODE_PROBE_BW_UP ? cwnd + 2 : cwnd;
}

CC_INLINE u32 bbr3_inflight(const struct cc_connection *conn, const struct bbr3 *bbr, u32 bw,
			    u32 gain)
{
	return bbr3_quantize(conn, bbr, bbr_bdp(bw, bbr->min_rtt_us, gain));
}

CC_INLINE u32 bbr3_at_departure(const struct cc_connection *conn, const struct bbr3 *bbr,
				u32 inflight)
{
	return bbr_inflight_at_departure(conn, inflight, bbr3_bw(bbr), bbr->pacing_gain);
}

/* What is wanted in flight: the BDP, unless congestion has cut cwnd below it. */
CC_INLINE u32 bbr3_target_inflight(const struct cc_connection *conn, const struct bbr3 *bbr)
{
	return cc_min(bbr3_inflight(conn, bbr, bbr3_bw(bbr), BBR_UNIT), conn->cwnd);
}

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

CC_INLINE bool bbr3_is_probing(const struct bbr3 *bbr)
{
	return bbr->mode == CC_MODE_STARTUP || bbr->mode == CC_MODE_PROBE_BW_REFILL ||
	       bbr->mode == CC_MODE_PROBE_BW_UP;
}

/* --- losses, as google's stack would tell them --------------------------------------------------
 */

static void bbr3_note_losses(const struct cc_connection *conn, struct bbr3 *bbr)
{
	u32 step = bbr->loss_step & (BBR3_LOSS_STEPS - 1);

	if (conn->lost == bbr->lost)
		return;
	bbr->loss_steps[step].delivered = conn->delivered;
	bbr->loss_steps[step].lost = bbr->lost;
	bbr->loss_step++;
	bbr->lost = conn->lost;
}

/*
 * Packets marked lost since conn->delivered was "delivered". Of more steps than are remembered the
 * oldest count as if they had been before.
 */
static u32 bbr3_lost_since(const struct bbr3 *bbr, u32 delivered)
{
	u32 lost = bbr->lost;

	for (u32 back = 1; back <= BBR3_LOSS_STEPS; back++) {
		u32 step = (bbr->loss_step - back) & (BBR3_LOSS_STEPS - 1);

		if (!cc_after(bbr->loss_steps[step].delivered, delivered))
			break;
		lost = bbr->loss_steps[step].lost;
	}
	return bbr->lost - lost;
}

/* Section 5.3.3.1 (IsInflightTooHigh): more than 2 % of what was in flight is lost. */
CC_INLINE bool bbr3_is_inflight_too_high(const struct bbr3_ack *ack)
{
	return ack->lost && ack->tx_in_flight &&
	       ack->lost > (u32)((u64)ack->tx_in_flight * bbr3_loss_threshold >> BBR_SCALE);
}

/*
 * How much was in flight when losses passed the threshold (BBRInflightHiFromLostPacket): of the
 * "losses" packets of this ACK the first x are still allowed, where
 * (lost before + x) / (in flight before + x) is the threshold.
 */
static u32 bbr3_inflight_at_loss(const struct bbr3_ack *ack, u32 losses)
{
	u32 flight, lost;
	u64 budget;

	losses = cc_min(losses, cc_min(ack->tx_in_flight, ack->lost));
	flight = ack->tx_in_flight - losses;
	lost = ack->lost - losses;
	budget = ((u64)flight * bbr3_loss_threshold + BBR_UNIT - 1) >> BBR_SCALE;
	if (lost < budget)
		flight += (u32)(((budget - lost) << BBR_SCALE) / (BBR_UNIT - bbr3_loss_threshold));
	return flight;
}

/* --- bounds ------------------------------------------------------------------------------------
 */

CC_INLINE void bbr3_reset_lower_bounds(struct bbr3 *bbr)
{
	bbr->bw_lo = BBR3_UNSET;
	bbr->inflight_lo = BBR3_UNSET;
}

CC_INLINE void bbr3_reset_congestion_signals(struct bbr3 *bbr)
{
	bbr->loss_in_round = false;
	bbr->bw_latest = 0;
	bbr->inflight_latest = 0;
}

/* Section 5.3.3.4: once a round with losses, unless they are those of a probe. */
static void bbr3_adapt_lower_bounds(const struct cc_connection *conn, struct bbr3 *bbr)
{
	u32 keep = BBR_UNIT - bbr3_beta;

	if (bbr3_is_probing(bbr) || !bbr->loss_in_round)
		return;
	if (bbr->bw_lo == BBR3_UNSET)
		bbr->bw_lo = bbr3_max_bw(bbr);
	if (bbr->inflight_lo == BBR3_UNSET)
		bbr->inflight_lo = conn->cwnd;
	/* Never below what was delivered in this round: that much the path does carry. */
	bbr->bw_lo = cc_max(bbr->bw_latest, (u32)((u64)bbr->bw_lo * keep >> BBR_SCALE));
	bbr->bw_lo = cc_max(bbr->bw_lo, 1);
	bbr->inflight_lo =
	    cc_max(bbr->inflight_latest, (u32)((u64)bbr->inflight_lo * keep >> BBR_SCALE));
}

static void bbr3_update_latest(const struct cc_connection *conn, const struct cc_sample *sample,
			       const struct bbr3_ack *ack, struct bbr3 *bbr)
{
	bbr->loss_round_start = false;
	if (!bbr3_has_sample(sample))
		return;
	bbr->bw_latest = cc_max(bbr->bw_latest, ack->bw);
	bbr->inflight_latest = cc_max(bbr->inflight_latest, (u32)sample->delivered);
	if (!cc_after(bbr->loss_round_delivered, sample->prior_delivered)) {
		bbr->loss_round_delivered = conn->delivered;
		bbr->loss_round_start = true;
	}
}

/* The next round begins with this sample. */
static void bbr3_advance_latest(const struct cc_sample *sample, const struct bbr3_ack *ack,
				struct bbr3 *bbr)
{
	if (!bbr->loss_round_start)
		return;
	bbr->bw_latest = ack->bw;
	bbr->inflight_latest = (u32)sample->delivered;
}

static void bbr3_update_congestion_signals(const struct cc_connection *conn,
					   const struct cc_sample *sample,
					   const struct bbr3_ack *ack, struct bbr3 *bbr)
{
	if (!bbr3_has_sample(sample))
		return;
	if (!sample->is_app_limited || ack->bw >= bbr3_max_bw(bbr))
		bbr->bw_hi[1] = cc_max(bbr->bw_hi[1], ack->bw);
	bbr->loss_in_round |= sample->losses > 0;
	if (!bbr->loss_round_start)
		return;
	bbr3_adapt_lower_bounds(conn, bbr);
	bbr->loss_in_round = false;
}

/* --- the phases of PROBE_BW (section 5.3.3) ------------------------------------------------------
 */

CC_INLINE void bbr3_reset_full_bw(struct bbr3 *bbr, u32 bw)
{
	bbr->full_bw = bw;
	bbr->full_bw_rounds = 0;
	bbr->full_bw_now = false;
}

/* Section 5.3.3.5.1: two to three seconds, or 62 to 63 rounds, drawn for flows to mix. */
static void bbr3_start_down(struct cc_connection *conn, struct bbr3 *bbr)
{
	bbr3_reset_congestion_signals(bbr);
	bbr->up_per_packet = BBR3_UNSET; /* inflight_hi grows no more */
	bbr->rounds_since_probe = cc_random_below(conn, 2);
	bbr->probe_wait_us = bbr3_probe_base + cc_random_below(conn, bbr3_probe_random);
	bbr->cycle_us = conn->now_us;
	bbr->ack_phase = BBR3_ACKS_PROBE_STOPPING;
	bbr->round_delivered = conn->delivered;
	bbr->mode = CC_MODE_PROBE_BW_DOWN;
}

CC_INLINE void bbr3_start_cruise(struct bbr3 *bbr)
{
	if (bbr->inflight_lo != BBR3_UNSET)
		bbr->inflight_lo = cc_min(bbr->inflight_lo, bbr->inflight_hi);
	bbr->mode = CC_MODE_PROBE_BW_CRUISE;
}

CC_INLINE void bbr3_start_refill(const struct cc_connection *conn, struct bbr3 *bbr)
{
	bbr3_reset_lower_bounds(bbr);
	bbr->up_rounds = 0;
	bbr->up_acked = 0;
	bbr->stopped_risky_probe = false;
	bbr->ack_phase = BBR3_ACKS_REFILLING;
	bbr->round_delivered = conn->delivered;
	bbr->mode = CC_MODE_PROBE_BW_REFILL;
}

/* In UP inflight_hi grows by 1, 2, 4, ... packets a round. */
CC_INLINE void bbr3_raise_slope(const struct cc_connection *conn, struct bbr3 *bbr)
{
	u32 growth = 1U << (bbr->up_rounds & 31);

	bbr->up_rounds = (u8)cc_min(bbr->up_rounds + 1, BBR3_MOST_UP_ROUNDS);
	bbr->up_per_packet = cc_max(conn->cwnd / growth, 1);
}

CC_INLINE void bbr3_start_up(const struct cc_connection *conn, const struct bbr3_ack *ack,
			     struct bbr3 *bbr)
{
	bbr->ack_phase = BBR3_ACKS_PROBE_STARTING;
	bbr->round_delivered = conn->delivered;
	bbr->cycle_us = conn->now_us;
	bbr3_reset_full_bw(bbr, ack->bw);
	bbr->mode = CC_MODE_PROBE_BW_UP;
	bbr3_raise_slope(conn, bbr);
}

/* Once per probe. A sample that the application limited says nothing of what fits. */
static void bbr3_handle_too_high(struct cc_connection *conn, bool app_limited, u32 in_flight,
				 struct bbr3 *bbr)
{
	bbr->prev_probe_too_high = true;
	bbr->probe_samples = false;
	if (!app_limited) {
		u32 kept = (u32)((u64)bbr3_target_inflight(conn, bbr) * (BBR_UNIT - bbr3_beta) >>
				 BBR_SCALE);

		bbr->inflight_hi = cc_max(in_flight, kept);
	}
	if (bbr->mode == CC_MODE_PROBE_BW_UP)
		bbr3_start_down(conn, bbr);
}

/* Losses of a probe are acted on at once, where google's stack calls for each packet. */
static void bbr3_on_losses(struct cc_connection *conn, const struct cc_sample *sample,
			   const struct bbr3_ack *ack, struct bbr3 *bbr)
{
	if (sample->losses <= 0)
		return;
	if (!bbr->loss_in_round)
		bbr->loss_round_delivered = conn->delivered; /* see a whole round of it */
	bbr->loss_in_round = true;
	if (bbr->probe_samples && bbr3_is_inflight_too_high(ack))
		bbr3_handle_too_high(conn, sample->is_app_limited,
				     bbr3_inflight_at_loss(ack, (u32)sample->losses), bbr);
}

static void bbr3_raise_inflight_hi(const struct cc_connection *conn, const struct cc_sample *sample,
				   struct bbr3 *bbr)
{
	if (!conn->is_cwnd_limited || conn->cwnd < bbr->inflight_hi)
		return; /* it is not used up, so nothing is known of more */
	bbr->up_acked += sample->acked_sacked;
	if (bbr->up_acked >= bbr->up_per_packet && bbr->up_per_packet) {
		u32 packets = bbr->up_acked / bbr->up_per_packet;

		bbr->up_acked -= packets * bbr->up_per_packet;
		bbr->inflight_hi += packets;
	}
	if (bbr->round_start)
		bbr3_raise_slope(conn, bbr);
}

/* True where the next phase is decided already. */
static bool bbr3_adapt_upper_bounds(struct cc_connection *conn, const struct cc_sample *sample,
				    const struct bbr3_ack *ack, struct bbr3 *bbr)
{
	if (bbr->ack_phase == BBR3_ACKS_PROBE_STARTING && bbr->round_start)
		bbr->ack_phase = BBR3_ACKS_PROBE_FEEDBACK;
	if (bbr->ack_phase == BBR3_ACKS_PROBE_STOPPING && bbr->round_start) {
		/* All of the probe is back: its most bandwidth is known, that of the last may go.
		 */
		bbr->probe_samples = false;
		bbr->ack_phase = BBR3_ACKS_INIT;
		if (bbr3_is_probe_bw(bbr) && !sample->is_app_limited && bbr->bw_hi[1]) {
			bbr->bw_hi[0] = bbr->bw_hi[1];
			bbr->bw_hi[1] = 0;
		}
		/* It went up to inflight_hi, and that was not too much: try more at once. */
		if (bbr3_is_probe_bw(bbr) && bbr->stopped_risky_probe &&
		    !bbr->prev_probe_too_high) {
			bbr3_start_refill(conn, bbr);
			return true;
		}
	}
	if (bbr3_is_inflight_too_high(ack)) {
		if (bbr->probe_samples)
			bbr3_handle_too_high(conn, sample->is_app_limited, ack->tx_in_flight, bbr);
		return false;
	}
	if (bbr->inflight_hi == BBR3_UNSET)
		return false;
	if (ack->tx_in_flight > bbr->inflight_hi)
		bbr->inflight_hi = ack->tx_in_flight; /* in any phase: it was seen to work */
	if (bbr->mode == CC_MODE_PROBE_BW_UP)
		bbr3_raise_inflight_hi(conn, sample, bbr);
	return false;
}

/* By the clock, or where a Reno flow of this window would have had its loss. */
static bool bbr3_is_time_to_probe(const struct cc_connection *conn, const struct bbr3 *bbr)
{
	u32 rounds = cc_min(bbr3_probe_rounds, bbr3_target_inflight(conn, bbr));

	return cc_us_since(conn->now_us, bbr->cycle_us + bbr->probe_wait_us) > 0 ||
	       bbr->rounds_since_probe >= rounds;
}

static bool bbr3_is_up_over(const struct cc_connection *conn, const struct bbr3_ack *ack,
			    u32 inflight, struct bbr3 *bbr)
{
	if (bbr->prev_probe_too_high && inflight >= bbr->inflight_hi) {
		bbr->stopped_risky_probe = true;
		return true;
	}
	if (!bbr3_up_until_plateau)
		return cc_us_since(conn->now_us, bbr->cycle_us + bbr->min_rtt_us) > 0 &&
		       inflight >= bbr3_inflight(conn, bbr, bbr3_max_bw(bbr), bbr3_up_gain);
	if (conn->is_cwnd_limited && conn->cwnd >= bbr->inflight_hi) {
		bbr3_reset_full_bw(bbr, ack->bw); /* the bound holds bandwidth down, not the path */
		return false;
	}
	return bbr->full_bw_now;
}

static void bbr3_update_cycle(struct cc_connection *conn, const struct cc_sample *sample,
			      const struct bbr3_ack *ack, struct bbr3 *bbr)
{
	u32 inflight;

	if (!bbr->full_bw_reached || bbr3_adapt_upper_bounds(conn, sample, ack, bbr) ||
	    !bbr3_is_probe_bw(bbr))
		return;
	inflight = bbr3_at_departure(conn, bbr, sample->prior_in_flight);
	switch (bbr->mode) {
	case CC_MODE_PROBE_BW_DOWN:
		if (bbr3_is_time_to_probe(conn, bbr))
			bbr3_start_refill(conn, bbr);
		else if (inflight <= bbr3_with_headroom(bbr) &&
			 inflight <= bbr3_inflight(conn, bbr, bbr3_max_bw(bbr), BBR_UNIT))
			bbr3_start_cruise(bbr);
		break;
	case CC_MODE_PROBE_BW_CRUISE:
		if (bbr3_is_time_to_probe(conn, bbr))
			bbr3_start_refill(conn, bbr);
		break;
	case CC_MODE_PROBE_BW_REFILL:
		if (bbr->round_start) {
			bbr->probe_samples = true;
			bbr3_start_up(conn, ack, bbr);
		}
		break;
	case CC_MODE_PROBE_BW_UP:
		if (bbr3_is_up_over(conn, ack, inflight, bbr)) {
			bbr->prev_probe_too_high = false; /* none seen yet */
			bbr3_start_down(conn, bbr);
		}
		break;
	}
}

/* --- STARTUP and DRAIN (sections 5.3.1 and 5.3.2) ------------------------------------------------
 */

/* Section 5.3.1.3: a round of recovery with many losses. */
static void bbr3_check_startup_losses(const struct cc_connection *conn,
				      const struct cc_sample *sample, const struct bbr3_ack *ack,
				      struct bbr3 *bbr)
{
	if (bbr->full_bw_reached)
		return;
	if (sample->losses > 0 && bbr->loss_events < 15)
		bbr->loss_events++;
	if (!bbr->loss_round_start)
		return;
	if (bbr3_startup_losses && conn->ca_state == CC_CA_RECOVERY &&
	    bbr->loss_events >= bbr3_startup_losses && bbr3_is_inflight_too_high(ack)) {
		bbr->full_bw_reached = true;
		bbr->inflight_hi = bbr3_inflight(conn, bbr, bbr3_max_bw(bbr), BBR_UNIT);
		if (BBR3_STARTUP_KEEPS_INFLIGHT)
			bbr->inflight_hi = cc_max(bbr->inflight_hi, bbr->inflight_latest);
	}
	bbr->loss_events = 0;
}

/* Section 5.3.1.2: three rounds in which bandwidth grew by less than a quarter. */
static void bbr3_check_full_bw(const struct cc_sample *sample, const struct bbr3_ack *ack,
			       struct bbr3 *bbr)
{
	if (bbr->full_bw_now || sample->is_app_limited)
		return;
	if (!bbr3_growth_each_ack && !bbr->round_start)
		return;
	if (ack->bw >= (u32)((u64)bbr->full_bw * bbr3_full_bw_growth >> BBR_SCALE)) {
		bbr3_reset_full_bw(bbr, ack->bw);
		return;
	}
	if (!bbr->round_start)
		return;
	bbr->full_bw_rounds++;
	bbr->full_bw_now = bbr->full_bw_rounds >= bbr3_full_bw_rounds;
	bbr->full_bw_reached |= bbr->full_bw_now;
}

static void bbr3_check_drain(struct cc_connection *conn, struct bbr3 *bbr)
{
	u32 bdp;

	if (bbr->mode != CC_MODE_DRAIN && (bbr->mode != CC_MODE_STARTUP || !bbr->full_bw_reached))
		return;
	bdp = bbr3_inflight(conn, bbr, bbr3_max_bw(bbr), BBR_UNIT);
	if (bbr->mode == CC_MODE_STARTUP) {
		bbr->mode = CC_MODE_DRAIN;
		bbr->drain_rounds = 0;
		conn->ssthresh = bdp; /* for those who watch */
		bbr3_reset_congestion_signals(bbr);
	} else if (bbr->round_start) {
		bbr->drain_rounds = (u8)cc_min(bbr->drain_rounds + 1, 255);
	}
	if (bbr3_at_departure(conn, bbr, conn->in_flight) <= bdp ||
	    (bbr3_drain_rounds && bbr->drain_rounds >= bbr3_drain_rounds))
		bbr3_start_down(conn, bbr);
}

/* --- minimum RTT and PROBE_RTT (section 5.3.4) ---------------------------------------------------
 */

CC_INLINE u32 bbr3_probe_rtt_cwnd(const struct bbr3 *bbr)
{
	return cc_max(bbr_bdp(bbr3_bw(bbr), bbr->min_rtt_us, bbr3_probe_rtt_cwnd_gain),
		      bbr3_min_cwnd);
}

static void bbr3_save_cwnd(const struct cc_connection *conn, struct bbr3 *bbr)
{
	bool cut = bbr->prev_ca_state >= CC_CA_RECOVERY || bbr->mode == CC_MODE_PROBE_RTT;

	bbr->prior_cwnd = cut ? cc_max(bbr->prior_cwnd, conn->cwnd) : conn->cwnd;
}

/* In flight is below the BDP, so there is nothing to drain: cruise, and probe when it is time. */
static void bbr3_leave_probe_rtt(struct cc_connection *conn, struct bbr3 *bbr)
{
	if (!bbr->probe_rtt_ticks || !cc_after(conn->now_ticks, bbr->probe_rtt_ticks))
		return;
	bbr->probe_rtt_min_ticks = conn->now_ticks;
	conn->cwnd = cc_max(conn->cwnd, bbr->prior_cwnd);
	bbr3_reset_lower_bounds(bbr);
	if (bbr->full_bw_reached) {
		bbr3_start_down(conn, bbr);
		bbr3_start_cruise(bbr);
	} else {
		bbr->mode = CC_MODE_STARTUP;
	}
}

static void bbr3_hold_probe_rtt(struct cc_connection *conn, struct bbr3 *bbr)
{
	/* The rate of these samples is ours, not the path's. */
	conn->app_limited = conn->delivered + conn->in_flight;
	if (!conn->app_limited)
		conn->app_limited = 1;
	if (!bbr->probe_rtt_ticks && conn->in_flight <= bbr3_probe_rtt_cwnd(bbr)) {
		bbr->probe_rtt_ticks = conn->now_ticks + cc_ms_to_ticks(conn, bbr3_probe_rtt);
		bbr->probe_rtt_round_done = false;
		bbr->round_delivered = conn->delivered;
	} else if (bbr->probe_rtt_ticks) {
		bbr->probe_rtt_round_done |= bbr->round_start;
		if (bbr->probe_rtt_round_done)
			bbr3_leave_probe_rtt(conn, bbr);
	}
}

static void bbr3_update_min_rtt(struct cc_connection *conn, const struct cc_sample *sample,
				struct bbr3 *bbr)
{
	u32 now = conn->now_ticks;
	bool due =
	    cc_after(now, bbr->probe_rtt_min_ticks + cc_ms_to_ticks(conn, bbr3_probe_rtt_interval));
	bool expired;

	if (sample->rtt_us >= 0 &&
	    (sample->rtt_us < bbr->probe_rtt_min_us || (due && !sample->is_ack_delayed))) {
		bbr->probe_rtt_min_us = (u32)sample->rtt_us;
		bbr->probe_rtt_min_ticks = now;
	}
	expired = cc_after(now, bbr->min_rtt_ticks + bbr3_min_rtt_window * conn->tick_hz);
	if (bbr->probe_rtt_min_us <= bbr->min_rtt_us || expired) {
		bbr->min_rtt_us = bbr->probe_rtt_min_us;
		bbr->min_rtt_ticks = bbr->probe_rtt_min_ticks;
	}
	if (bbr3_probe_rtt && due && !bbr->idle_restart && bbr->mode != CC_MODE_PROBE_RTT) {
		bbr3_save_cwnd(conn, bbr);
		bbr->mode = CC_MODE_PROBE_RTT;
		bbr->probe_rtt_ticks = 0;
		bbr->ack_phase = BBR3_ACKS_PROBE_STOPPING;
		bbr->round_delivered = conn->delivered;
	}
	if (bbr->mode == CC_MODE_PROBE_RTT)
		bbr3_hold_probe_rtt(conn, bbr);
	if (sample->delivered > 0)
		bbr->idle_restart = false;
}

/* --- ACK aggregation (section 5.5.9) -------------------------------------------------------------
 */

static void bbr3_update_aggregation(const struct cc_connection *conn,
				    const struct cc_sample *sample, struct bbr3 *bbr)
{
	u32 half = bbr->extra_acked_half & 1;
	u32 expected, extra;

	if (!bbr3_extra_acked_gain || !bbr3_has_sample(sample))
		return;
	if (bbr->round_start) {
		bbr->extra_acked_age = (u8)cc_min(bbr->extra_acked_age + 1, 31);
		/* In STARTUP it changes too fast for a longer memory. */
		if (bbr->extra_acked_age >= (bbr->full_bw_reached ? bbr3_extra_acked_rounds : 1)) {
			half ^= 1;
			bbr->extra_acked_age = 0;
			bbr->extra_acked_half = (u8)half;
			bbr->extra_acked[half] = 0;
		}
	}
	expected = (u32)((u64)bbr3_bw(bbr) * cc_us_since(conn->delivered_us, bbr->aggregation_us) >>
			 BBR_BW_SCALE);
	if (bbr->aggregation_acked <= expected ||
	    bbr->aggregation_acked + sample->acked_sacked >= 1U << 20) {
		bbr->aggregation_acked = 0;
		bbr->aggregation_us = conn->delivered_us;
		expected = 0;
	}
	bbr->aggregation_acked = cc_min(0xfffff, bbr->aggregation_acked + sample->acked_sacked);
	extra = cc_min(bbr->aggregation_acked - expected, conn->cwnd);
	if (extra > bbr->extra_acked[half])
		bbr->extra_acked[half] = (u16)cc_min(extra, 0xffff);
}

CC_INLINE u32 bbr3_aggregation_cwnd(const struct bbr3 *bbr)
{
	u32 most = (u32)((u64)bbr3_bw(bbr) * bbr3_extra_acked_time >> BBR_BW_SCALE);
	u32 extra = cc_max(bbr->extra_acked[0], bbr->extra_acked[1]);

	return cc_min(bbr3_extra_acked_gain * extra >> BBR_SCALE, most);
}

/* --- rate and window -----------------------------------------------------------------------------
 */

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

static void bbr3_first_pacing_rate(struct cc_connection *conn, struct bbr3 *bbr)
{
	u32 rtt_us = CC_USEC_PER_MSEC;

	if (conn->srtt_us_8) {
		rtt_us = cc_max(conn->srtt_us_8 >> 3, 1);
		bbr->has_seen_rtt = true;
	}
	conn->pacing_rate = bbr_pacing_rate(conn, (u32)((u64)conn->cwnd * BBR_BW_UNIT / rtt_us),
					    bbr3_startup_pacing_gain);
}

static void bbr3_set_pacing_rate(struct cc_connection *conn, struct bbr3 *bbr, u32 gain)
{
	u64 rate = bbr_pacing_rate(conn, bbr3_bw(bbr), gain);

	if (!bbr->has_seen_rtt && conn->srtt_us_8)
		bbr3_first_pacing_rate(conn, bbr);
	if (bbr->full_bw_reached || rate > conn->pacing_rate)
		conn->pacing_rate = rate;
}

/* Section 5.6.4.6. */
static void bbr3_set_cwnd(struct cc_connection *conn, const struct cc_sample *sample,
			  const struct bbr3 *bbr)
{
	u32 acked = sample->acked_sacked;
	u32 cwnd = conn->cwnd;

	if (acked) {
		u32 target = bbr_bdp(bbr3_bw(bbr), bbr->min_rtt_us, bbr->cwnd_gain);

		target = bbr3_quantize(conn, bbr, target + bbr3_aggregation_cwnd(bbr));
		if (bbr->full_bw_reached)
			cwnd = cc_min(cwnd + acked, target);
		else if (cwnd < target || cwnd < 2 * bbr->init_cwnd)
			cwnd += acked;
		cwnd = cc_max(cwnd, bbr3_min_cwnd);
	}
	if (bbr->mode == CC_MODE_PROBE_RTT)
		cwnd = cc_min(cwnd, bbr3_probe_rtt_cwnd(bbr));
	conn->cwnd = cc_min(cwnd, conn->cwnd_clamp);
}

/* Section 5.6.4.7: inflight_hi, with room for others unless it is probed; inflight_lo always. */
static void bbr3_bound_cwnd(struct cc_connection *conn, const struct bbr3 *bbr)
{
	u32 most = BBR3_UNSET;

	if (bbr->mode == CC_MODE_PROBE_BW_CRUISE || bbr->mode == CC_MODE_PROBE_RTT)
		most = bbr3_with_headroom(bbr);
	else if (bbr3_is_probe_bw(bbr))
		most = bbr->inflight_hi;
	most = cc_max(cc_min(most, bbr->inflight_lo), bbr3_min_cwnd);
	conn->cwnd = cc_min(conn->cwnd, most);
}

/* --- what the stack calls -------------------------------------------------------------------- */

static void bbr3_update_round(const struct cc_connection *conn, const struct cc_sample *sample,
			      struct bbr3 *bbr)
{
	bbr->round_start = false;
	if (sample->interval_us <= 0 || cc_after(bbr->round_delivered, sample->prior_delivered))
		return;
	bbr->round_delivered = conn->delivered;
	bbr->round_start = true;
	bbr->rounds_since_probe = cc_min(bbr->rounds_since_probe + 1, BBR3_MOST_ROUNDS_SINCE_PROBE);
}

static void bbr3_look_at(const struct cc_connection *conn, const struct cc_sample *sample,
			 struct bbr3 *bbr, struct bbr3_ack *ack)
{
	bbr3_note_losses(conn, bbr);
	ack->bw = 0;
	ack->lost = 0;
	ack->tx_in_flight = 0;
	if (sample->interval_us > 0 && sample->delivered >= 0)
		/* Rounded up, or a low rate could not grow. */
		ack->bw =
		    (u32)(((u64)sample->delivered * BBR_BW_UNIT + (u64)sample->interval_us - 1) /
			  (u64)sample->interval_us);
	if (sample->delivered > 0) {
		ack->lost = bbr3_lost_since(bbr, sample->prior_delivered);
		ack->tx_in_flight = (u32)sample->delivered + ack->lost;
	}
}

static void bbr3_update_model(struct cc_connection *conn, const struct cc_sample *sample,
			      const struct bbr3_ack *ack, struct bbr3 *bbr)
{
	bbr3_update_congestion_signals(conn, sample, ack, bbr);
	bbr3_update_aggregation(conn, sample, bbr);
	bbr3_check_startup_losses(conn, sample, ack, bbr);
	bbr3_check_full_bw(sample, ack, bbr);
	bbr3_check_drain(conn, bbr);
	bbr3_update_cycle(conn, sample, ack, bbr);
	bbr3_update_min_rtt(conn, sample, bbr);
	bbr3_update_gains(bbr);
}

static void bbr3_on_ack(struct cc_connection *conn, const struct cc_sample *sample,
			struct bbr3 *bbr)
{
	struct bbr3_ack ack;

	bbr3_look_at(conn, sample, bbr, &ack);
	bbr3_on_losses(conn, sample, &ack, bbr);
	bbr3_update_round(conn, sample, bbr);
	bbr3_update_latest(conn, sample, &ack, bbr);
	if (!BBR3_LATEST_AT_END)
		bbr3_advance_latest(sample, &ack, bbr);
	bbr3_update_model(conn, sample, &ack, bbr);
	bbr3_set_pacing_rate(conn, bbr, bbr->pacing_gain);
	bbr3_set_cwnd(conn, sample, bbr);
	bbr3_bound_cwnd(conn, bbr);
	if (BBR3_LATEST_AT_END)
		bbr3_advance_latest(sample, &ack, bbr);
	bbr->prev_ca_state = conn->ca_state;
}

static void bbr3_init(struct cc_connection *conn, struct bbr3 *bbr)
{
	conn->ssthresh = CC_INFINITE_SSTHRESH;
	conn->wants_pacing = 1;
	bbr->mode = CC_MODE_STARTUP;
	bbr->init_cwnd = cc_min(conn->cwnd, 127);
	bbr->prior_cwnd = conn->prior_cwnd;
	bbr->round_delivered = conn->delivered;
	bbr->loss_round_delivered = conn->delivered + 1;
	bbr->lost = conn->lost;
	for (u32 step = 0; step < BBR3_LOSS_STEPS; step++) {
		bbr->loss_steps[step].delivered = conn->delivered;
		bbr->loss_steps[step].lost = conn->lost;
	}
	bbr->min_rtt_us = bbr->probe_rtt_min_us = conn->min_rtt_us;
	bbr->min_rtt_ticks = bbr->probe_rtt_min_ticks = conn->now_ticks;
	bbr->aggregation_us = conn->now_us;
	bbr->inflight_hi = BBR3_UNSET;
	bbr->up_per_packet = BBR3_UNSET;
	bbr3_reset_lower_bounds(bbr);
	bbr3_first_pacing_rate(conn, bbr);
}

/* After silence, what the path can carry need not be tried out again: no surplus. */
static void bbr3_on_event(struct cc_connection *conn, u32 event, struct bbr3 *bbr)
{
	if (event != CC_EVENT_TX_START || !conn->app_limited)
		return;
	bbr->idle_restart = true;
	bbr->aggregation_us = conn->now_us;
	bbr->aggregation_acked = 0;
	if (bbr3_is_probe_bw(bbr))
		bbr3_set_pacing_rate(conn, bbr, BBR_UNIT);
	else if (bbr->mode == CC_MODE_PROBE_RTT)
		bbr3_leave_probe_rtt(conn, bbr);
}

static void bbr3_set_state(struct cc_connection *conn, u8 state, struct bbr3 *bbr)
{
	if (state == CC_CA_LOSS) {
		bbr->prev_ca_state = CC_CA_LOSS;
		bbr3_reset_full_bw(bbr, 0);
		/* The bound is to be cut from the window before the timeout took it away. */
		if (!bbr3_is_probing(bbr) && bbr->inflight_lo == BBR3_UNSET)
			bbr->inflight_lo = cc_max(conn->cwnd, bbr->prior_cwnd);
	} else if (bbr->prev_ca_state == CC_CA_LOSS) {
		conn->cwnd = cc_min(cc_max(conn->cwnd, bbr->prior_cwnd), conn->cwnd_clamp);
	}
}

static u32 bbr3_ssthresh(const struct cc_connection *conn, struct bbr3 *bbr)
{
	bbr3_save_cwnd(conn, bbr);
	bbr->undo_bw_lo = bbr->bw_lo;
	bbr->undo_inflight_lo = bbr->inflight_lo;
	bbr->undo_inflight_hi = bbr->inflight_hi;
	return conn->ssthresh;
}

/* Section 5.5.12: the loss was none, so what it has cut comes back. */
static u32 bbr3_undo_cwnd(const struct cc_connection *conn CC_UNUSED, struct bbr3 *bbr)
{
	bbr3_reset_full_bw(bbr, 0);
	bbr->loss_in_round = false;
	bbr->bw_lo = cc_max(bbr->bw_lo, bbr->undo_bw_lo);
	bbr->inflight_lo = cc_max(bbr->inflight_lo, bbr->undo_inflight_lo);
	bbr->inflight_hi = cc_max(bbr->inflight_hi, bbr->undo_inflight_hi);
	return cc_max(bbr->prior_cwnd, 1);
}

CC_INLINE void bbr3_model(const struct bbr3 *bbr, struct bbr_model *model)
{
	model->bw = bbr3_bw(bbr);
	model->min_rtt_us = bbr->min_rtt_us;
	model->pacing_gain = bbr->pacing_gain;
	model->high_gain = bbr3_startup_pacing_gain;
	model->mode = bbr->mode;
}

CC_INLINE void bbr3_report(const struct cc_connection *conn, const struct bbr3 *bbr,
			   struct cc_report *report)
{
	report->bandwidth = bbr_bw_for_users(conn, bbr3_bw(bbr));
	report->min_rtt_us = bbr->min_rtt_us;
	report->pacing_gain = bbr->pacing_gain;
	report->cwnd_gain = bbr->cwnd_gain;
	report->mode = bbr->mode;
}

#endif
