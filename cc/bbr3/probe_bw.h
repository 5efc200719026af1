/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/*
 * BBR version 3: the four phases of PROBE_BW (section 5.3.3), and the upper bound inflight_hi that
 * a probe raises or cuts. Functions without a section of their own are in 5.3.3.9.
 */
#ifndef BROBUST_CC_BBR3_PROBE_BW_H
#define BROBUST_CC_BBR3_PROBE_BW_H

#include "full_pipe.h"
#include "short_term.h"

/* A phase has another rate and window, which the next ACK sets. */
CC_INLINE void bbr3_set_phase(struct bbr3 *bbr, u8 mode)
{
	bbr->mode = mode;
	bbr->at_target = false;
}

/*
 * StartProbeBW_DOWN, with PickProbeWait of section 5.3.3.8.3: the next probe comes after two to
 * three seconds, or after 62 to 63 rounds, drawn at random so that flows mix.
 */
static void bbr3_start_down(struct cc_connection *conn, struct bbr3 *bbr)
{
	bbr3_reset_congestion_signals(bbr);
	bbr->up_per_packet = BBR3_UNSET; /* inflight_hi grows no more */
	bbr->rounds_since_probe = cc_random_below(conn, bbr3_probe_random_rounds);
	bbr->probe_wait_us = bbr3_probe_base + cc_random_below(conn, bbr3_probe_random);
	bbr->cycle_us = conn->now_us;
	bbr->ack_phase = BBR3_ACKS_PROBE_STOPPING;
	bbr->round_delivered = conn->delivered;
	bbr3_set_phase(bbr, CC_MODE_PROBE_BW_DOWN);
}

/* StartProbeBW_CRUISE. Deviation, as in google's code: inflight_lo is at most inflight_hi. */
CC_INLINE void bbr3_start_cruise(struct bbr3 *bbr)
{
	if (bbr->inflight_lo != BBR3_UNSET)
		bbr->inflight_lo = cc_min(bbr->inflight_lo, bbr->inflight_hi);
	bbr3_set_phase(bbr, CC_MODE_PROBE_BW_CRUISE);
}

/* StartProbeBW_REFILL, section 5.3.3.3. */
CC_INLINE void bbr3_start_refill(const struct cc_connection *conn, struct bbr3 *bbr)
{
	bbr3_reset_lower_bounds(bbr);
	bbr->up_rounds = 0;
	bbr->up_acked = 0;
	bbr->stopped_risky_probe = false;
	bbr->ack_phase = BBR3_ACKS_REFILLING;
	bbr->round_delivered = conn->delivered;
	bbr3_set_phase(bbr, CC_MODE_PROBE_BW_REFILL);
}

/* RaiseInflightLongtermSlope: in UP inflight_hi grows by 1, 2, 4, ... packets a round (5.3.3.5). */
CC_INLINE void bbr3_raise_slope(const struct cc_connection *conn, struct bbr3 *bbr)
{
	u32 growth = 1U << (bbr->up_rounds & 31);

	bbr->up_rounds = (u8)cc_min(bbr->up_rounds + 1, BBR3_MAX_UP_ROUNDS);
	bbr->up_per_packet = cc_max(conn->cwnd / growth, 1);
}

/* StartProbeBW_UP. */
CC_INLINE void bbr3_start_up(const struct cc_connection *conn, const struct bbr3_ack *ack,
			     struct bbr3 *bbr)
{
	bbr->ack_phase = BBR3_ACKS_PROBE_STARTING;
	bbr->round_delivered = conn->delivered;
	bbr->cycle_us = conn->now_us;
	bbr3_reset_full_bw(bbr, ack->bw);
	bbr3_set_phase(bbr, CC_MODE_PROBE_BW_UP);
	bbr3_raise_slope(conn, bbr);
}

/*
 * HandleInflightTooHigh, section 5.5.10.2, once per probe. A sample that the application limited
 * does not show what the path holds.
 */
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

/* NoteLoss, section 5.5.10.2. */
CC_INLINE void bbr3_note_loss(const struct cc_connection *conn, struct bbr3 *bbr)
{
	if (!bbr->loss_in_round)
		bbr->loss_round_delivered = conn->delivered; /* observe a whole round */
	bbr->loss_in_round = true;
}

/*
 * NoteLoss and HandleLostPacket, section 5.5.10.2: losses of a probe count at once. Deviation: they
 * are called once per ACK where the stack does not call a control for each lost packet.
 */
static void bbr3_on_losses(struct cc_connection *conn, const struct cc_sample *sample,
			   const struct bbr3_ack *ack, struct bbr3 *bbr)
{
	u32 losses = cc_min((u32)sample->losses, cc_min(ack->tx_in_flight, ack->lost));

	if (sample->losses <= 0)
		return;
	bbr3_note_loss(conn, bbr);
	if (bbr->probe_samples && bbr3_is_inflight_too_high(ack))
		bbr3_handle_too_high(conn, sample->is_app_limited,
				     bbr3_inflight_at_loss(ack, losses), bbr);
}

/* The same for one lost packet, of a stack that tells of it. */
static void bbr3_on_lost(struct cc_connection *conn, const struct cc_sample *packet,
			 struct bbr3 *bbr)
{
	const struct bbr3_ack ack = {
	    .lost = (u32)packet->lost,
	    .tx_in_flight = packet->tx_in_flight,
	};

	if (!bbr3_stack_signals)
		return;
	bbr->is_told = true;
	bbr3_note_loss(conn, bbr);
	if (packet->tells_losses && bbr->probe_samples && bbr3_is_inflight_too_high(&ack))
		bbr3_handle_too_high(conn, packet->is_app_limited,
				     bbr3_inflight_at_loss(&ack, (u32)packet->losses), bbr);
}

/*
 * A tail loss probe has repaired the loss of one packet, of which the stack has not told. Deviation,
 * as in google's code: the draft has no such rule. What was delivered last is taken for what was in
 * flight.
 */
CC_INLINE void bbr3_on_repaired_tail(struct cc_connection *conn, bool app_limited, struct bbr3 *bbr)
{
	const struct bbr3_ack ack = {.lost = 1, .tx_in_flight = bbr->inflight_latest + 1};

	if (BBR3_IS_VERSION_2 || !bbr3_stack_signals)
		return;
	bbr3_note_loss(conn, bbr);
	if (bbr->probe_samples && bbr3_is_inflight_too_high(&ack))
		bbr3_handle_too_high(conn, app_limited, ack.tx_in_flight, bbr);
}

/* ProbeInflightLongtermUpward. */
static void bbr3_raise_inflight_hi(const struct cc_connection *conn, const struct cc_sample *sample,
				   struct bbr3 *bbr)
{
	if (!conn->cwnd_was_full || conn->cwnd < bbr->inflight_hi) {
		if (BBR3_IS_VERSION_2)
			bbr->up_acked = 0;
		return; /* the bound is not used up, so nothing is known about more */
	}
	bbr->up_acked += sample->acked_sacked;
	if (bbr->up_acked >= bbr->up_per_packet && bbr->up_per_packet) {
		u32 packets = bbr->up_acked / bbr->up_per_packet;

		bbr->up_acked -= packets * bbr->up_per_packet;
		bbr->inflight_hi += packets;
		if (!BBR3_IS_VERSION_2)
			bbr->at_target = false;
	}
	if (bbr->round_start)
		bbr3_raise_slope(conn, bbr);
}

/*
 * AdaptLongTermModel. Return true where it has decided the next phase. Deviations, as in google's
 * code: the filter of the maximum bandwidth advances only if this cycle had a sample, and an ACK
 * that shows too many losses during a probe is handled here too.
 */
static bool bbr3_adapt_upper_bounds(struct cc_connection *conn, const struct cc_sample *sample,
				    const struct bbr3_ack *ack, struct bbr3 *bbr)
{
	if (bbr->ack_phase == BBR3_ACKS_PROBE_STARTING && bbr->round_start)
		bbr->ack_phase = BBR3_ACKS_PROBE_FEEDBACK;
	if (bbr->ack_phase == BBR3_ACKS_PROBE_STOPPING && bbr->round_start) {
		/* The whole probe has come back: its maximum bandwidth replaces the last one's. */
		bbr->probe_samples = false;
		bbr->ack_phase = BBR3_ACKS_INIT;
		if (bbr3_is_probe_bw(bbr) && !sample->is_app_limited && bbr->bw_hi[1]) {
			bbr->bw_hi[0] = bbr->bw_hi[1];
			bbr->bw_hi[1] = 0;
		}
		/* 5.3.3.6: it went up to inflight_hi, which was not too much, so try more at
		 * once. */
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
		bbr->inflight_hi = ack->tx_in_flight; /* in any phase: this much has worked */
	if (bbr->mode == CC_MODE_PROBE_BW_UP)
		bbr3_raise_inflight_hi(conn, sample, bbr);
	return false;
}

/* IsTimeToProbeBW, section 5.3.3.8.3: by the clock, or as often as a Reno flow of this window
 * loses. */
static bool bbr3_is_time_to_probe(const struct cc_connection *conn, const struct bbr3 *bbr)
{
	u32 rounds = cc_min(bbr3_probe_rounds, bbr3_target_inflight(conn, bbr));

	return cc_us_since(conn->now_us, bbr->cycle_us + bbr->probe_wait_us) > 0 ||
	       bbr->rounds_since_probe >= rounds;
}

/*
 * IsTimeToGoDown, section 5.3.3.7; losses end UP in bbr3_handle_too_high(). Version 2 goes down
 * with 1.25 BDP in flight after a minimum RTT instead of on a plateau of bandwidth.
 */
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
	if (conn->cwnd_was_full && conn->cwnd >= bbr->inflight_hi) {
		bbr3_reset_full_bw(bbr, ack->bw); /* the bound limits bandwidth, not the path */
		return false;
	}
	return bbr->full_bw_now;
}

/* UpdateProbeBWCyclePhase. */
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
			bbr->prev_probe_too_high = false; /* no high loss seen yet */
			bbr3_start_down(conn, bbr);
		}
		break;
	}
}

#endif
