/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/*
 * A control of cc/controls as BPF struct_ops. Such a file includes this at its end; cc/cc.h tells
 * what it has defined.
 *
 * The snapshot of the connection lies in the socket's state, since it would fill most of a BPF
 * program's 512 bytes of stack.
 */
#include "../../call.h"
#include "kernel.h"

/* Whether each call is written into cc_calls. The loader sets it; where it is false, the verifier
 * drops the code. */
const volatile bool records_calls = false;

struct socket_state {
	struct cc_report report; /* first: crates/sockdiag reads it */
	struct cc_connection conn;
	struct control control;
	u32 records;
};

#include "socket_state.h"

/* The loader makes it only where calls are recorded, and larger. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} cc_calls SEC(".maps");

static __always_inline u32 random_below(u32 below)
{
	return (u64)bpf_get_prandom_u32() * below >> 32;
}

static __always_inline void record(struct sock *sk, struct socket_state *state, u32 kind, u64 value,
				   const struct cc_sample *sample)
{
	u32 number = state->records++;
	struct cc_call *call = bpf_ringbuf_reserve(&cc_calls, sizeof(*call), 0);

	if (!call)
		return;
	call->socket = (u64)sk;
	call->number = number;
	cc_fill_call(call, kind, value, &state->conn, sample, &state->report);
	bpf_ringbuf_submit(call, 0);
}

#include "../callbacks.h"
