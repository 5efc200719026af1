/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/*
 * The callbacks of tcp_congestion_ops for a policy beside the kernel's own BBR, once for BPF and
 * for modules. The kernel's BBR runs on the socket; the policy sees the model before and after, and
 * may give the stack another rate and window.
 *
 * Included by the beside_kernel_bbr.h of a host, which has defined:
 *
 *	bbr_main(args), bbr_init(sk), ...	the kernel's own functions
 *	bbr_event(sk, event)			what it does at an event, or nothing
 *	look_at_bbr(sk, view)			fills struct bbr_view
 *	struct socket_state			with the fields report, conn and policy
 *
 * and, as callbacks.h explains them: CALLBACK, CONG_CONTROL, CWND_EVENT, state_of, make_state,
 * forget_state and note_report. cc/bbr_control.h does the same with a BBR of ours.
 *
 * Without memory for its state a socket has BBR as it is; each ACK tries again.
 *
 * A policy without POLICY_SCHEDULES is asked after each ACK only. BBR also sets a rate at an event,
 * but only when the application was the limit, which is no deficit.
 */
#include "../bbr.h"
#include "snapshot.h"

_Static_assert(BBR_VIEW_PROBE_BW_UP == CC_MODE_PROBE_BW_UP &&
		   BBR_VIEW_PROBE_BW_UP + 3 == CC_MODE_PROBE_BW_REFILL,
	       "bbr_view.h has cc.h's modes");

#define POLICY_PASTE(policy, function) policy##function
#define POLICY_NAME(policy, function) POLICY_PASTE(policy, function)
#define POLICY_FUNCTION(function) POLICY_NAME(POLICY, function)

CC_INLINE struct socket_state *state_or_new(struct sock *sk)
{
	struct socket_state *state = state_of(sk);

	if (state)
		return state;
	state = make_state(sk);
	if (!state)
		return NULL;
	load_connection(sk, &state->conn);
	POLICY_FUNCTION(_init)(&state->conn, &state->policy);
	return state;
}

/* A socket may come back to a control that it has had before: it gets new state. */
CALLBACK(void, on_init, struct sock *sk)
{
	bbr_init(sk);
	forget_state(sk);
	state_or_new(sk);
}

CC_INLINE void update_report(struct sock *sk, struct socket_state *state,
			     const struct bbr_view *bbr)
{
	struct cc_report *report = &state->report;

	report->bandwidth = bbr_bw_for_users(&state->conn, bbr->bw);
	report->min_rtt_us = bbr->min_rtt_us;
	report->pacing_gain = bbr->pacing_gain;
	report->cwnd_gain = bbr->cwnd_gain;
	report->mode = bbr->mode;
	report->acks++;
	POLICY_FUNCTION(_report)(&state->policy, report);
	note_report(sk, report);
}

CC_INLINE void after_ack(struct sock *sk, const struct cc_sample *sample)
{
	struct socket_state *state = state_or_new(sk);
	struct bbr_model model;
	struct bbr_view bbr;

	if (!state)
		return;
	look_at_bbr(sk, &bbr);
	model.bw = bbr.bw;
	model.min_rtt_us = bbr.min_rtt_us;
	model.pacing_gain = bbr.pacing_gain;
	model.high_gain = bbr.high_gain;
	model.mode = bbr.mode;
	load_connection(sk, &state->conn);
	POLICY_FUNCTION(_on_ack)(&state->conn, sample, &model, &state->policy);
	store_connection(sk, &state->conn);
	update_report(sk, state, &bbr);
}

#ifdef POLICY_SCHEDULES

CC_INLINE void before_ack(struct sock *sk, const struct cc_sample *sample)
{
	struct socket_state *state = state_of(sk);

	if (!state)
		return;
	load_connection(sk, &state->conn);
	POLICY_FUNCTION(_before_ack)(&state->conn, sample, &state->policy);
	store_connection(sk, &state->conn);
}

/* These two are around each of BBR's functions that looks at rate or window. */
CC_INLINE void before_bbr(struct sock *sk)
{
	struct socket_state *state = state_of(sk);

	if (!state)
		return;
	load_connection(sk, &state->conn);
	POLICY_FUNCTION(_before)(&state->conn, &state->policy);
	store_connection(sk, &state->conn);
}

CC_INLINE void after_bbr(struct sock *sk, u8 ca_state)
{
	struct socket_state *state = state_of(sk);

	if (!state)
		return;
	load_connection(sk, &state->conn);
	state->conn.ca_state = ca_state;
	POLICY_FUNCTION(_after)(&state->conn, &state->policy);
	store_connection(sk, &state->conn);
}

CALLBACK(void, on_set_state, struct sock *sk, u8 new_state)
{
	before_bbr(sk);
	bbr_set_state(sk, new_state);
	after_bbr(sk, new_state); /* the stack is in it only after this call */
}

CC_INLINE void process_event(struct sock *sk, enum tcp_ca_event event)
{
	before_bbr(sk);
	bbr_event(sk, event);
	after_bbr(sk, ca_state_of(sk));
}

CWND_EVENT(process_event)

CALLBACK(u32, on_ssthresh, struct sock *sk)
{
	u32 ssthresh;

	before_bbr(sk);
	ssthresh = bbr_ssthresh(sk);
	after_bbr(sk, ca_state_of(sk));
	return ssthresh;
}

CALLBACK(u32, on_undo_cwnd, struct sock *sk)
{
	before_bbr(sk);
	return bbr_undo_cwnd(sk);
}

CC_INLINE void before_sending(struct sock *sk)
{
	struct socket_state *state = state_of(sk);

	if (!state)
		return;
	load_connection(sk, &state->conn);
	POLICY_FUNCTION(_on_send)(&state->conn, &state->policy);
	store_connection(sk, &state->conn);
}

/* The stack asks at each pass of its write loop, before it looks at the rate. */
#ifdef CONTROLS_SIZE_BURSTS
CALLBACK(u32, on_tso_segs, struct sock *sk, unsigned int mss)
{
	before_sending(sk);
	return bbr_tso_segs(sk, mss);
}
#else
CALLBACK(u32, on_min_tso_segs, struct sock *sk)
{
	before_sending(sk);
	return bbr_min_tso_segs(sk);
}
#endif

#else

CC_INLINE void before_ack(struct sock *sk CC_UNUSED, const struct cc_sample *sample CC_UNUSED)
{
}

#endif

CC_INLINE void process_ack(const struct cong_control_args *args)
{
	struct cc_sample sample;

	load_sample(args->rs, &sample);
	before_ack(args->sk, &sample);
	bbr_main(args);
	after_ack(args->sk, &sample);
}

CONG_CONTROL(process_ack)
