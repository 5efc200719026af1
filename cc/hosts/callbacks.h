/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/*
 * The callbacks of tcp_congestion_ops for a control of cc/controls, once for BPF and for modules:
 * each takes a snapshot of the socket, calls the control, and writes back what the control decided.
 *
 * Included by the control.h of a host, which has defined:
 *
 *	CALLBACK(type, name, arguments...)	the head of a callback
 *	CONG_CONTROL(process_ack)		on_cong_control(), whose arguments differ between
 *						kernels, around process_ack()
 *	CWND_EVENT(process_event)		on_cwnd_event(), and more where the kernel has more,
 *						around process_event()
 *	CWND_EVENT_OPERATIONS			them in the table of callbacks
 *	struct socket_state			what is kept for a socket, with the fields report,
 *						conn and control
 *	state_of(sk)				a socket's state, or NULL
 *	make_state(sk)				new state, all zero, or NULL without memory
 *	forget_state(sk)			makes state_of() return NULL
 *	random_below(below)			a uniform draw from 0 to below - 1
 *	records_calls				true where calls are recorded (cc/call.h)
 *	record(sk, state, kind, value, sample)	records one
 *	note_report(sk, report)			called when the report has changed
 *	OPERATIONS				the name of the table of callbacks
 *	OPERATION(field)			a callback in it
 *	HOST_OPERATIONS				the fields in it that depend on the host
 *
 * Without memory for its state a socket's window stays as it is; each ACK tries again.
 */
#include "../call.h"
#include "snapshot.h"

CC_INLINE u32 cc_random_below(struct cc_connection *conn, u32 below)
{
	u32 random = random_below(below);

	conn->random[conn->random_draws & 3] = random;
	conn->random_draws++;
	return random;
}

/* These two are around every call of the control. */
CC_INLINE void begin_call(struct sock *sk, struct socket_state *state, u32 kind, u64 value,
			  const struct cc_sample *sample)
{
	load_connection(sk, &state->conn);
	if (records_calls)
		record(sk, state, kind, value, sample);
}

CC_INLINE void end_call(struct sock *sk, struct socket_state *state, u64 answer)
{
	store_connection(sk, &state->conn);
	if (records_calls)
		record(sk, state, CC_CALL_RETURN, answer, NULL);
}

CC_INLINE struct socket_state *state_or_new(struct sock *sk)
{
	struct socket_state *state = state_of(sk);

	if (state)
		return state;
	state = make_state(sk);
	if (!state)
		return NULL;
	begin_call(sk, state, CC_CALL_INIT, 0, NULL);
	control_init(&state->conn, &state->control);
	end_call(sk, state, 0);
	return state;
}

CC_INLINE void update_report(struct sock *sk, struct socket_state *state)
{
	state->report.acks++;
	control_report(&state->conn, &state->control, &state->report);
	note_report(sk, &state->report);
}

/* A socket may come back to a control that it has had before: it gets new state. */
CALLBACK(void, on_init, struct sock *sk)
{
	forget_state(sk);
	state_or_new(sk);
}

#ifdef CC_WINDOW_BASED

CALLBACK(void, on_cong_avoid, struct sock *sk, u32 ack, u32 acked)
{
	struct socket_state *state = state_or_new(sk);

	if (!state)
		return;
	begin_call(sk, state, CC_CALL_ON_ACKED, acked, NULL);
	control_on_acked(&state->conn, acked, &state->control);
	update_report(sk, state);
	end_call(sk, state, 0);
}

#ifdef CC_ON_RTT
CALLBACK(void, on_pkts_acked, struct sock *sk, const struct ack_sample *sample)
{
	struct socket_state *state = state_of(sk);

	if (!state || sample->rtt_us < 0)
		return;
	begin_call(sk, state, CC_CALL_ON_RTT, sample->rtt_us, NULL);
	control_on_rtt(&state->conn, sample->rtt_us, &state->control);
	end_call(sk, state, 0);
}
#endif

#else

CC_INLINE void process_ack(const struct cong_control_args *args)
{
	struct socket_state *state = state_or_new(args->sk);
	struct cc_sample sample;

	if (!state)
		return;
	load_sample(args->rs, &sample);
	begin_call(args->sk, state, CC_CALL_ON_ACK, 0, &sample);
	control_on_ack(&state->conn, &sample, &state->control);
	update_report(args->sk, state);
	end_call(args->sk, state, 0);
}

CONG_CONTROL(process_ack)

CALLBACK(u32, on_sndbuf_expand, struct sock *sk)
{
	return control_sndbuf_expand();
}

#endif

#if !defined(CC_WINDOW_BASED) || defined(CC_ON_SEND)
CC_INLINE void before_sending(struct sock *sk CC_UNUSED)
{
#ifdef CC_ON_SEND
	struct socket_state *state = state_of(sk);

	if (state) {
		begin_call(sk, state, CC_CALL_ON_SEND, 0, NULL);
		control_on_send(&state->conn, &state->control);
		end_call(sk, state, 0);
	}
#endif
}

/* The stack asks at each pass of its write loop, before it looks at the rate. */
#ifdef CONTROLS_SIZE_BURSTS
CALLBACK(u32, on_tso_segs, struct sock *sk, unsigned int mss)
{
#ifdef CC_BURSTS
	struct socket_state *state;

	before_sending(sk);
	state = state_of(sk);
	if (state) {
		load_connection(sk, &state->conn);
		return control_burst(&state->conn, mss, &state->control);
	}
#else
	before_sending(sk);
#endif
	return burst_of_stack(sk, mss, control_min_tso_segs(READ_ONCE(sk->sk_pacing_rate)));
}
#else
CALLBACK(u32, on_min_tso_segs, struct sock *sk)
{
	before_sending(sk);
	return control_min_tso_segs(READ_ONCE(sk->sk_pacing_rate));
}
#endif
#endif

#if defined(CC_ON_LOST) && defined(STACK_TELLS_LOSSES)
CALLBACK(void, on_skb_marked_lost, struct sock *sk, const struct sk_buff *skb)
{
	struct socket_state *state = state_of(sk);
	struct cc_sample packet;

	if (!state)
		return;
	load_lost_packet(sk, skb, &packet);
	begin_call(sk, state, CC_CALL_ON_LOST, 0, &packet);
	control_on_lost(&state->conn, &packet, &state->control);
	end_call(sk, state, 0);
}
#endif

#ifdef CC_SET_STATE
CALLBACK(void, on_set_state, struct sock *sk, u8 new_state)
{
	struct socket_state *state = state_of(sk);

	if (!state)
		return;
	begin_call(sk, state, CC_CALL_SET_STATE, new_state, NULL);
	control_set_state(&state->conn, new_state, &state->control);
	end_call(sk, state, 0);
}
#endif

#ifdef CC_ON_EVENT
CC_INLINE void process_event(struct sock *sk, enum tcp_ca_event event)
{
	struct socket_state *state = state_of(sk);

	if (!state)
		return;
	begin_call(sk, state, CC_CALL_ON_EVENT, event_of(sk, event), NULL);
	control_on_event(&state->conn, event_of(sk, event), &state->control);
	end_call(sk, state, 0);
}

CWND_EVENT(process_event)
#endif

CALLBACK(u32, on_ssthresh, struct sock *sk)
{
	struct socket_state *state = state_of(sk);
	u32 ssthresh;

	if (!state)
		return cc_max(tcp_snd_cwnd(tcp_sk(sk)) / 2, 2);
	begin_call(sk, state, CC_CALL_SSTHRESH, 0, NULL);
	ssthresh = control_ssthresh(&state->conn, &state->control);
	end_call(sk, state, ssthresh);
	return ssthresh;
}

CALLBACK(u32, on_undo_cwnd, struct sock *sk)
{
	struct socket_state *state = state_of(sk);
	u32 cwnd;

	if (!state)
		return tcp_snd_cwnd(tcp_sk(sk));
	begin_call(sk, state, CC_CALL_UNDO_CWND, 0, NULL);
	cwnd = control_undo_cwnd(&state->conn, &state->control);
	end_call(sk, state, cwnd);
	return cwnd;
}

struct tcp_congestion_ops OPERATIONS = {
    .name = NAME(CC_NAME),
    HOST_OPERATIONS,
    OPERATION(init),
#ifdef CC_WINDOW_BASED
    OPERATION(cong_avoid),
#ifdef CC_ON_RTT
    OPERATION(pkts_acked),
#endif
#else
    OPERATION(cong_control),
    OPERATION(sndbuf_expand),
#endif
#if !defined(CC_WINDOW_BASED) || defined(CC_ON_SEND)
#ifdef CONTROLS_SIZE_BURSTS
    OPERATION(tso_segs),
#else
    OPERATION(min_tso_segs),
#endif
#endif
#if defined(CC_ON_LOST) && defined(STACK_TELLS_LOSSES)
    OPERATION(skb_marked_lost),
#endif
#ifdef CC_SET_STATE
    OPERATION(set_state),
#endif
#ifdef CC_ON_EVENT
    CWND_EVENT_OPERATIONS,
#endif
    OPERATION(ssthresh),
    OPERATION(undo_cwnd),
};
