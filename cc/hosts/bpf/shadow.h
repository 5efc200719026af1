/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/*
 * The kernel's own control with ours as its shadow. At every call the kernel's function runs on the
 * socket, and ours on a snapshot of the same socket and with its own state; then what the two
 * decided is compared. The packets are the kernel's: nothing of ours reaches the socket.
 *
 * Included at the end of a shadow's file, which has included our control and defined:
 *
 *	CC_NAME
 *	KERNEL(name)			the kernel's function for a field of tcp_congestion_ops,
 *					and KERNEL(event)(sk, event) for its events
 *	struct shadow_model		what is compared of the control's state: nothing but u32,
 *					by the names of our fields
 *	kernel_model(sk, model)		fills it from the kernel's state
 *	our_model(control, model)	fills it from ours
 *	cc_random_below()		as cc/cc.h wants it, and
 *	infer_draw(sk, conn)		what it needs of the kernel's state after the kernel's call
 *
 * crates/ccload/src/shadow.rs takes the fields of all structs here, and the names of the calls,
 * from the object's BTF, so that nothing has to be kept the same by hand.
 */
#include "../snapshot.h"

#define SHADOW_MODEL (sizeof(struct shadow_model) / sizeof(u32))

enum shadow_call {
	SHADOW_INIT,
	SHADOW_ON_ACK,
	SHADOW_ON_RTT,
	SHADOW_SET_STATE,
	SHADOW_ON_EVENT,
	SHADOW_SSTHRESH,
	SHADOW_UNDO_CWND,
	SHADOW_MIN_TSO_SEGS,
	SHADOW_SNDBUF_EXPAND,
};

/* What is compared. */
struct shadow_side {
	u64 pacing_rate;
	u32 cwnd;
	u32 cwnd_count;
	u32 ssthresh;
	u32 app_limited;
	u32 result; /* what the call returned, if it returns anything */
	struct shadow_model model;
};

struct shadow {
	u64 calls;
	u64 acks; /* how many of the calls were ACKs */
	u64 differences;
	u64 first_call; /* number of the first call that differed */
	enum shadow_call first_kind;
	u32 padding;
	struct shadow_side kernel, ours; /* both sides of that call */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct shadow);
} shadow SEC(".maps");

struct socket_state {
	struct cc_report report; /* first: crates/sockdiag reads it */
	struct cc_connection conn;
	struct control control;
	struct shadow_side kernel, ours;
	struct {
		struct cc_connection conn;
		struct control control;
	} before;
};

#include "socket_state.h"

static __always_inline bool same(const struct shadow_side *a, const struct shadow_side *b)
{
	bool same = a->pacing_rate == b->pacing_rate && a->cwnd == b->cwnd &&
		    a->cwnd_count == b->cwnd_count && a->ssthresh == b->ssthresh &&
		    a->app_limited == b->app_limited && a->result == b->result;
	const u32 *a_model = (const u32 *)&a->model, *b_model = (const u32 *)&b->model;

	for (u32 i = 0; i < SHADOW_MODEL; i++)
		same = same && a_model[i] == b_model[i];
	return same;
}

static __always_inline void fill_kernel_side(struct sock *sk, struct socket_state *state,
					     u32 result)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	state->kernel.pacing_rate = sk->sk_pacing_rate;
	state->kernel.cwnd = tp->snd_cwnd;
	state->kernel.cwnd_count = tp->snd_cwnd_cnt;
	state->kernel.ssthresh = tp->snd_ssthresh;
	state->kernel.app_limited = tp->app_limited;
	state->kernel.result = result;
	kernel_model(sk, &state->kernel.model);
}

static __always_inline void fill_our_side(struct socket_state *state, u32 result)
{
	state->ours.pacing_rate = state->conn.pacing_rate;
	state->ours.cwnd = state->conn.cwnd;
	state->ours.cwnd_count = state->conn.cwnd_count;
	state->ours.ssthresh = state->conn.ssthresh;
	state->ours.app_limited = state->conn.app_limited;
	state->ours.result = result;
	our_model(&state->control, &state->ours.model);
}

/* Sockets on several CPUs count together; of two first differences at once one is kept. */
static __always_inline void count(const struct socket_state *state, u32 kind)
{
	struct shadow *found;
	u32 zero = 0;
	u64 number;

	found = bpf_map_lookup_elem(&shadow, &zero);
	if (!found)
		return;
	number = __sync_fetch_and_add(&found->calls, 1);
	if (kind == SHADOW_ON_ACK)
		__sync_fetch_and_add(&found->acks, 1);
	if (same(&state->kernel, &state->ours))
		return;
	if (__sync_fetch_and_add(&found->differences, 1))
		return;
	found->first_call = number;
	found->first_kind = kind;
	found->kernel = state->kernel;
	found->ours = state->ours;
}

/*
 * Called after the kernel's function: runs ours, the expression `decide`, and compares what the two
 * decided.
 *
 * The snapshot has the time in ticks from before the kernel's call, which reads the time itself. If
 * a tick came in between, the kernel may have seen either time: where ours differs with the first,
 * it is repeated from the same state with the second. Both controls keep the times of what
 * happened, so a wrong guess shows as a difference too.
 */
#define COMPARE(sk, state, kind, kernel_result, decide)                                            \
	do {                                                                                       \
		struct socket_state *at = (state);                                                 \
		u32 ticks = (u32)bpf_jiffies64();                                                  \
                                                                                                   \
		infer_draw(sk, &at->conn);                                                         \
		fill_kernel_side(sk, at, kernel_result);                                           \
		at->before.conn = at->conn;                                                        \
		at->before.control = at->control;                                                  \
		for (int attempt = 0; attempt < 2; attempt++) {                                    \
			fill_our_side(at, (decide));                                               \
			if (same(&at->kernel, &at->ours) || ticks == at->before.conn.now_ticks)    \
				break;                                                             \
			at->before.conn.now_ticks = ticks;                                         \
			at->conn = at->before.conn;                                                \
			at->control = at->before.control;                                          \
		}                                                                                  \
		count(at, kind);                                                                   \
	} while (0)

/* The socket's state, with a snapshot of the socket as the kernel's function is about to find
 * it. */
static __always_inline struct socket_state *before_kernel(struct sock *sk)
{
	struct socket_state *state = state_of(sk);

	if (state)
		load_connection(sk, &state->conn);
	return state;
}

CALLBACK(void, on_init, struct sock *sk)
{
	struct socket_state *state;

	forget_state(sk);
	state = make_state(sk);
	if (state)
		load_connection(sk, &state->conn);
	KERNEL(init)(sk);
	if (state)
		COMPARE(sk, state, SHADOW_INIT, 0,
			(control_init(&state->conn, &state->control), 0));
}

#ifdef CC_WINDOW_BASED

CALLBACK(void, on_cong_avoid, struct sock *sk, u32 ack, u32 acked)
{
	struct socket_state *state = before_kernel(sk);

	KERNEL(cong_avoid)(sk, ack, acked);
	if (!state)
		return;
	COMPARE(sk, state, SHADOW_ON_ACK, 0,
		(control_on_acked(&state->conn, acked, &state->control), 0));
	state->report.acks++;
	control_report(&state->conn, &state->control, &state->report);
}

CALLBACK(void, on_pkts_acked, struct sock *sk, const struct ack_sample *sample)
{
	struct socket_state *state = before_kernel(sk);

	KERNEL(pkts_acked)(sk, sample);
	if (state && sample->rtt_us >= 0)
		COMPARE(sk, state, SHADOW_ON_RTT, 0,
			(control_on_rtt(&state->conn, sample->rtt_us, &state->control), 0));
}

#else

static __always_inline void process_ack(const struct cong_control_args *args)
{
	struct socket_state *state = before_kernel(args->sk);
	struct cc_sample sample;

	load_sample(args->rs, &sample);
	KERNEL(cong_control)(args);
	if (!state)
		return;
	COMPARE(args->sk, state, SHADOW_ON_ACK, 0,
		(control_on_ack(&state->conn, &sample, &state->control), 0));
	state->report.acks++;
	control_report(&state->conn, &state->control, &state->report);
}

CONG_CONTROL(process_ack)

CALLBACK(u32, on_min_tso_segs, struct sock *sk)
{
	u32 segs = KERNEL(min_tso_segs)(sk);
	struct socket_state *state = before_kernel(sk);

	if (state)
		COMPARE(sk, state, SHADOW_MIN_TSO_SEGS, segs,
			control_min_tso_segs(state->conn.pacing_rate));
	return segs;
}

CALLBACK(u32, on_sndbuf_expand, struct sock *sk)
{
	u32 windows = KERNEL(sndbuf_expand)(sk);
	struct socket_state *state = before_kernel(sk);

	if (state)
		COMPARE(sk, state, SHADOW_SNDBUF_EXPAND, windows, control_sndbuf_expand());
	return windows;
}

#endif

static __always_inline void process_event(struct sock *sk, enum tcp_ca_event event)
{
	struct socket_state *state = before_kernel(sk);

	KERNEL(event)(sk, event);
	if (state)
		COMPARE(sk, state, SHADOW_ON_EVENT, 0,
			(control_on_event(&state->conn, event, &state->control), 0));
}

CWND_EVENT(process_event)

CALLBACK(void, on_set_state, struct sock *sk, u8 new_state)
{
	struct socket_state *state = before_kernel(sk);

	KERNEL(set_state)(sk, new_state);
	if (state)
		COMPARE(sk, state, SHADOW_SET_STATE, 0,
			(control_set_state(&state->conn, new_state, &state->control), 0));
}

CALLBACK(u32, on_ssthresh, struct sock *sk)
{
	struct socket_state *state = before_kernel(sk);
	u32 ssthresh = KERNEL(ssthresh)(sk);

	if (state)
		COMPARE(sk, state, SHADOW_SSTHRESH, ssthresh,
			control_ssthresh(&state->conn, &state->control));
	return ssthresh;
}

CALLBACK(u32, on_undo_cwnd, struct sock *sk)
{
	struct socket_state *state = before_kernel(sk);
	u32 cwnd = KERNEL(undo_cwnd)(sk);

	if (state)
		COMPARE(sk, state, SHADOW_UNDO_CWND, cwnd,
			control_undo_cwnd(&state->conn, &state->control));
	return cwnd;
}

struct tcp_congestion_ops OPERATIONS = {
    .name = NAME(CC_NAME),
    HOST_OPERATIONS,
    OPERATION(init),
#ifdef CC_WINDOW_BASED
    OPERATION(cong_avoid),
    OPERATION(pkts_acked),
#else
    OPERATION(cong_control),
    OPERATION(min_tso_segs),
    OPERATION(sndbuf_expand),
#endif
    CWND_EVENT_OPERATIONS,
    OPERATION(set_state),
    OPERATION(ssthresh),
    OPERATION(undo_cwnd),
};
