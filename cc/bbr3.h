/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/*
 * BBR, version 3: google's code (github.com/google/bbr, branch v3), and the draft that describes it
 * (draft-ietf-ccwg-bbr-06 of July 2026; "section" in these files means the draft's, and a name such
 * as IsTimeToProbeBW is the draft's function). bbr2.h is version 2.
 *
 * Like version 1 it keeps the bandwidth of the path and its round-trip time without queue, and
 * paces by them. Beside that it learns from losses how much the path holds:
 *
 *	bw_hi, inflight_hi	the maximum that has worked: long-term bounds, raised by probing
 *	bw_lo, inflight_lo	short-term bounds, cut by losses outside of probing, dropped by it
 *
 * The draft's names are max_bw, inflight_longterm, bw_shortterm and inflight_shortterm;
 * prev_probe_precautionary is stopped_risky_probe here. Probing is rare: every two to three
 * seconds, or sooner where a Reno flow of this size would lose packets sooner. The phases:
 *
 *	STARTUP		doubles the rate each round until the pipe is full
 *	DRAIN		empties the queue that STARTUP has built
 *	PROBE_BW_DOWN	below the bandwidth, until less is in flight than the path holds
 *	PROBE_BW_CRUISE	at the bandwidth
 *	PROBE_BW_REFILL	one round at the bandwidth without short-term bounds: the pipe fills
 *	PROBE_BW_UP	above the bandwidth, until it grows no more or losses pass 2 %
 *	PROBE_RTT	every five seconds: half a BDP in flight shows the RTT without queue
 *
 * bbr3/ has one file for each part of the model and for each phase:
 *
 *	params.h	constants		full_pipe.h	whether bandwidth still grows
 *	state.h		a connection's state	startup.h	the end of STARTUP by losses
 *	values.h	what it amounts to	drain.h		DRAIN
 *	losses.h	how much was lost	probe_bw.h	the four phases, and inflight_hi
 *	short_term.h	bw_lo, inflight_lo	probe_rtt.h	minimum RTT and PROBE_RTT
 *	aggregation.h	bunches of ACKs		rate_and_cwnd.h	gains, pacing rate, cwnd
 *
 * This file calls them in order for each event of the stack. Where google's code and the draft
 * differ, the code counts, and the function says "Deviation". Left out: ECN, which needs a route's
 * consent; protective load balancing; and, where the stack does not tell of them, the losses that a
 * tail loss probe repairs.
 */
#ifndef BROBUST_CC_BBR3_H
#define BROBUST_CC_BBR3_H

#include "bbr3/drain.h"
#include "bbr3/rate_and_cwnd.h"
#include "bbr3/startup.h"

/* UpdateRound, section 5.5.1. */
static void bbr3_update_round(const struct cc_connection *conn, const struct cc_sample *sample,
			      struct bbr3 *bbr)
{
	bbr->round_start = false;
	if (sample->interval_us <= 0 || cc_after(bbr->round_delivered, sample->prior_delivered))
		return;
	bbr->round_delivered = conn->delivered;
	bbr->round_start = true;
	bbr->rounds_since_probe = cc_min(bbr->rounds_since_probe + 1, BBR3_MAX_ROUNDS_SINCE_PROBE);
}

/* What the ACK shows beyond its sample (losses.h). */
static void bbr3_look_at(const struct cc_connection *conn, const struct cc_sample *sample,
			 struct bbr3 *bbr, struct bbr3_ack *ack)
{
	bbr3_note_losses(conn, bbr);
	bbr->is_told = bbr3_is_told(sample);
	ack->bw = 0;
	ack->lost = 0;
	ack->tx_in_flight = 0;
	if (sample->interval_us > 0 && sample->delivered >= 0)
		/* Rounded up: otherwise a low rate could not grow. */
		ack->bw =
		    (u32)(((u64)sample->delivered * BBR_BW_UNIT + (u64)sample->interval_us - 1) /
			  (u64)sample->interval_us);
	if (bbr->is_told) {
		ack->lost = sample->lost > 0 ? (u32)sample->lost : 0;
		ack->tx_in_flight = sample->tx_in_flight;
	} else if (sample->delivered > 0) {
		ack->lost = bbr3_lost_since(bbr, sample->prior_delivered);
		ack->tx_in_flight = (u32)sample->delivered + ack->lost;
	}
}

/* The part of UpdateModelAndState that moves from phase to phase. */
static void bbr3_update_phase(struct cc_connection *conn, const struct cc_sample *sample,
			      const struct bbr3_ack *ack, struct bbr3 *bbr)
{
	bbr3_check_drain(conn, bbr);
	bbr3_update_cycle(conn, sample, ack, bbr);
	bbr3_update_min_rtt(conn, sample, bbr);
}

/* UpdateModelAndState, section 5.2.3; the order is part of the behaviour. */
static void bbr3_update_model(struct cc_connection *conn, const struct cc_sample *sample,
			      const struct bbr3_ack *ack, struct bbr3 *bbr)
{
	if (BBR3_IS_VERSION_2)
		bbr3_update_latest(conn, sample, ack, bbr);
	bbr3_update_congestion_signals(conn, sample, ack, bbr);
	if (BBR3_IS_VERSION_2)
		bbr3_advance_latest(sample, ack, bbr);
	bbr3_update_aggregation(conn, sample, bbr);
	bbr3_check_startup_losses(conn, sample, ack, bbr);
	bbr3_check_full_bw(sample, ack, bbr);
	bbr3_update_phase(conn, sample, ack, bbr);
}

/*
 * Deviation, as in google's code: where the application is the limit, nothing was lost in this round
 * and cwnd is where the model wants it, an ACK with a lower bandwidth only moves the phases on. The
 * aggregation of ACKs is not looked at, for example. Return whether nothing came of it: then rate
 * and cwnd stay too.
 */
static bool bbr3_takes_fast_path(const struct cc_sample *sample, const struct bbr3_ack *ack,
				 const struct bbr3 *bbr)
{
	return bbr3_fast_path && bbr->at_target && sample->is_app_limited &&
	       ack->bw < bbr3_max_bw(bbr) && !bbr->loss_in_round;
}

/* UpdateControlParameters, section 5.2.3. */
static void bbr3_update_control(struct cc_connection *conn, const struct cc_sample *sample,
				struct bbr3 *bbr)
{
	bbr3_update_gains(bbr);
	bbr3_set_pacing_rate(conn, bbr, bbr->pacing_gain);
	bbr3_set_cwnd(conn, sample, bbr);
	bbr3_bound_cwnd(conn, bbr);
}

/* Section 5.2.3. In version 2 a round's latest delivery is part of the model. */
static void bbr3_on_ack(struct cc_connection *conn, const struct cc_sample *sample,
			struct bbr3 *bbr)
{
	struct bbr3_ack ack;

	bbr3_look_at(conn, sample, bbr, &ack);
	if (!bbr->is_told)
		bbr3_on_losses(conn, sample, &ack, bbr);
	bbr3_update_round(conn, sample, bbr);
	if (!BBR3_IS_VERSION_2)
		bbr3_update_latest(conn, sample, &ack, bbr);
	if (bbr3_takes_fast_path(sample, &ack, bbr)) {
		u32 min_rtt_us = bbr->min_rtt_us;
		u8 mode = bbr->mode;

		bbr3_update_phase(conn, sample, &ack, bbr);
		if (bbr->mode != mode || bbr->min_rtt_us != min_rtt_us || !bbr->at_target)
			bbr3_update_control(conn, sample, bbr);
		conn->cwnd = cc_min(conn->cwnd, conn->cwnd_clamp);
	} else {
		bbr3_update_model(conn, sample, &ack, bbr);
		bbr3_update_control(conn, sample, bbr);
	}
	if (!BBR3_IS_VERSION_2)
		bbr3_advance_latest(sample, &ack, bbr);
	bbr->prev_ca_state = conn->ca_state;
}

/* Section 5.2.1. */
static void bbr3_init(struct cc_connection *conn, struct bbr3 *bbr)
{
	conn->ssthresh = CC_INFINITE_SSTHRESH;
	conn->wants_pacing = 1;
	bbr->mode = CC_MODE_STARTUP;
	bbr->init_cwnd = cc_min(conn->cwnd, 127);
	bbr->prior_cwnd = conn->prior_cwnd;
	bbr->round_delivered = BBR3_IS_VERSION_2 ? 0 : conn->delivered;
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

/* HandleRestartFromIdle, section 5.4.1: pace at the bandwidth, since what the path carries is
 * known. */
static void bbr3_on_event(struct cc_connection *conn, u32 event, struct bbr3 *bbr)
{
#ifndef CC_NOT_TOLD_OF_PROBES
	if (event == CC_EVENT_TLP_RECOVERY || event == CC_EVENT_TLP_RECOVERY_APP_LIMITED)
		bbr3_on_repaired_tail(conn, event == CC_EVENT_TLP_RECOVERY_APP_LIMITED, bbr);
#endif
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

/*
 * OnEnterRTO and RestoreCwnd, section 5.6.4.4. The stack itself sets cwnd at a timeout. Deviation,
 * as in google's code: a timeout outside of probing also gives inflight_lo a value.
 */
static void bbr3_set_state(struct cc_connection *conn, u8 state, struct bbr3 *bbr)
{
	if (state == CC_CA_LOSS) {
		bbr->prev_ca_state = CC_CA_LOSS;
		bbr->full_bw = 0;
		if (!BBR3_IS_VERSION_2)
			bbr3_reset_full_bw(bbr, 0);
		if (!bbr->is_told && conn->lost != bbr->lost)
			bbr3_note_loss(conn, bbr);
		/* The bound starts from the window as it was before the timeout. */
		if (!bbr3_is_probing(bbr) && bbr->inflight_lo == BBR3_UNSET)
			bbr->inflight_lo = cc_max(conn->cwnd, bbr->prior_cwnd);
	} else if (bbr->prev_ca_state == CC_CA_LOSS) {
		conn->cwnd = cc_min(cc_max(conn->cwnd, bbr->prior_cwnd), conn->cwnd_clamp);
		bbr->at_target = false;
	}
}

/* SaveStateUponLoss, section 5.5.11.1. */
static u32 bbr3_ssthresh(const struct cc_connection *conn, struct bbr3 *bbr)
{
	bbr3_save_cwnd(conn, bbr);
	bbr->undo_bw_lo = bbr->bw_lo;
	bbr->undo_inflight_lo = bbr->inflight_lo;
	bbr->undo_inflight_hi = bbr->inflight_hi;
	return conn->ssthresh;
}

/*
 * HandleSpuriousLossDetection, section 5.5.11.2: nothing was lost, so what the loss cut comes back.
 * Deviation, as in google's code: the phase does not come back.
 */
static u32 bbr3_undo_cwnd(const struct cc_connection *conn CC_UNUSED, struct bbr3 *bbr)
{
	bbr3_reset_full_bw(bbr, 0);
	bbr->loss_in_round = false;
	bbr->bw_lo = cc_max(bbr->bw_lo, bbr->undo_bw_lo);
	bbr->inflight_lo = cc_max(bbr->inflight_lo, bbr->undo_inflight_lo);
	bbr->inflight_hi = cc_max(bbr->inflight_hi, bbr->undo_inflight_hi);
	if (!BBR3_IS_VERSION_2)
		bbr->at_target = false;
	return cc_max(bbr->prior_cwnd, 1);
}

#define BBR_HEARS_OF_LOSSES /* bbr3_on_lost() and bbr3_burst(): see bbr_control.h */

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
