/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/*
 * A control that is the kernel's own and has ours as its shadow: at every call the kernel's
 * function runs on the socket, ours on a snapshot of the same socket and on state of its own, and
 * what the two decided is compared. The packets are the kernel's; nothing of ours reaches the
 * socket.
 */
#ifndef BROBUST_SHADOW_H
#define BROBUST_SHADOW_H

#include "connection.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/*
 * The file that includes this defines before it
 *
 *	struct shadow_model	the control's own state: nothing but u32, each by the name of ours
 *
 * and after it kernel_model() and our_model(), which fill it from either side. The reader
 * (crates/ccload/src/shadow.rs) takes the fields of all structs here, and the names of the calls,
 * from the object's BTF, so that nothing has to be kept the same by hand.
 */
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
	u32 result; /* of the calls that have one */
	struct shadow_model model;
};

struct shadow {
	u64 calls;
	u64 acks; /* of these */
	u64 differences;
	u64 first_call; /* the first that differed: its number, */
	enum shadow_call first_kind;
	u32 padding;
	struct shadow_side kernel, ours; /* and both sides of it */
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

static __always_inline void kernel_model(struct sock *sk, struct shadow_model *model);
static __always_inline void our_model(const struct control *control, struct shadow_model *model);

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

static __always_inline void look_at_kernel(struct sock *sk, struct socket_state *state, u32 result)
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

static __always_inline void look_at_ours(struct socket_state *state, u32 result)
{
	state->ours.pacing_rate = state->conn.pacing_rate;
	state->ours.cwnd = state->conn.cwnd;
	state->ours.cwnd_count = state->conn.cwnd_count;
	state->ours.ssthresh = state->conn.ssthresh;
	state->ours.app_limited = state->conn.app_limited;
	state->ours.result = result;
	our_model(&state->control, &state->ours.model);
}

/* Sockets on several CPUs count together; of two firsts one is kept. */
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
 * After the kernel's call: runs ours, the expression `decide`, and compares what the two decided.
 *
 * The snapshot has the time in ticks from before the kernel's call, which reads it itself. If it
 * has ticked in between, the kernel may have seen either: ours, if it differs by the first, starts
 * anew from where it was with the second. Both keep when things happened, so that a wrong guess is
 * a difference too.
 */
#define COMPARE(sk, state, kind, kernel_result, decide)                                            \
	do {                                                                                       \
		struct socket_state *at = (state);                                                 \
		u32 ticks = (u32)bpf_jiffies64();                                                  \
                                                                                                   \
		look_at_kernel(sk, at, kernel_result);                                             \
		at->before.conn = at->conn;                                                        \
		at->before.control = at->control;                                                  \
		for (int attempt = 0; attempt < 2; attempt++) {                                    \
			look_at_ours(at, (decide));                                                \
			if (same(&at->kernel, &at->ours) || ticks == at->before.conn.now_ticks)    \
				break;                                                             \
			at->before.conn.now_ticks = ticks;                                         \
			at->conn = at->before.conn;                                                \
			at->control = at->before.control;                                          \
		}                                                                                  \
		count(at, kind);                                                                   \
	} while (0)

#endif
