/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/*
 * A control of cc/controls as BPF struct_ops. Included at the end of such a file; cc/cc.h tells
 * what it has defined.
 *
 * The control's state lies in socket storage: versions 2 and 3 of BBR do not fit into the 104 bytes
 * that a socket has for it, and nobody outside could read it there. Its beginning is struct
 * cc_report, which inet_diag shows to whoever asks for the map: the kernel takes no get_info
 * operation from BPF. The snapshot of the connection lies there too, since it would fill most of a
 * BPF program's 512 bytes of stack.
 *
 * Without memory for it the window stays as it is until there is some: each ACK tries again.
 */
#include "../cc/call.h"

#include "cong_control.h"
#include "connection.h"

/* Linux 6.1 does not let BPF write tcp_sock.app_limited; the loader finds out. */
const volatile bool may_write_app_limited = true;

/* To write every call into cc_calls. Set by the loader; without it the verifier drops the code. */
const volatile bool records_calls = false;

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct socket_state {
	struct cc_report report; /* first: crates/sockdiag reads it */
	struct cc_connection conn;
	struct control control;
	u32 records;
};

/* Only made, and of a useful size, where calls are recorded. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} cc_calls SEC(".maps");

#include "socket_state.h"

CC_INLINE u32 cc_random_below(struct cc_connection *conn, u32 below)
{
	u32 random = (u64)bpf_get_prandom_u32() * below >> 32;

	conn->random[conn->random_draws & 3] = random;
	conn->random_draws++;
	return random;
}

static __always_inline void store_connection(struct sock *sk, const struct cc_connection *conn)
{
	struct tcp_sock *tp = tcp_sk(sk);

	tp->snd_cwnd = conn->cwnd;
	tp->snd_cwnd_cnt = conn->cwnd_count;
	tp->snd_ssthresh = conn->ssthresh;
	if (may_write_app_limited)
		tp->app_limited = conn->app_limited;
#if !defined(CC_WINDOW_BASED) || defined(CC_ON_SEND)
	sk->sk_pacing_rate = conn->pacing_rate;
#endif
	if (conn->wants_pacing && sk->sk_pacing_status == SK_PACING_NONE)
		sk->sk_pacing_status = SK_PACING_NEEDED;
}

static __always_inline void record(struct sock *sk, struct socket_state *state, u32 kind, u64 value,
				   const struct cc_sample *sample)
{
	struct cc_call *call;
	u32 number = state->records++;

	call = bpf_ringbuf_reserve(&cc_calls, sizeof(*call), 0);
	if (!call)
		return;
	call->socket = (u64)sk;
	call->number = number;
	call->kind = kind;
	call->value = value;
	call->conn = state->conn;
	if (sample)
		call->sample = *sample;
	else
		__builtin_memset(&call->sample, 0, sizeof(call->sample));
	call->report = state->report;
	bpf_ringbuf_submit(call, 0);
}

/* Around every call of the control. */
static __always_inline void begin_call(struct sock *sk, struct socket_state *state, u32 kind,
				       u64 value, const struct cc_sample *sample)
{
	load_connection(sk, &state->conn);
	if (records_calls)
		record(sk, state, kind, value, sample);
}

static __always_inline void end_call(struct sock *sk, struct socket_state *state, u64 answer)
{
	store_connection(sk, &state->conn);
	if (records_calls)
		record(sk, state, CC_CALL_RETURN, answer, NULL);
}

static __always_inline struct socket_state *state_or_new(struct sock *sk)
{
	struct socket_state *state = state_of(sk);

	if (state)
		return state;
	state = bpf_sk_storage_get(&cc_state, sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);
	if (!state)
		return NULL;
	begin_call(sk, state, CC_CALL_INIT, 0, NULL);
	control_init(&state->conn, &state->control);
	end_call(sk, state, 0);
	return state;
}

/* A socket may come back to a control that it has had: then its state begins anew. */
SEC("struct_ops")
void BPF_PROG(on_init, struct sock *sk)
{
	bpf_sk_storage_delete(&cc_state, sk);
	state_or_new(sk);
}

#ifdef CC_WINDOW_BASED

SEC("struct_ops")
void BPF_PROG(on_cong_avoid, struct sock *sk, u32 ack, u32 acked)
{
	struct socket_state *state = state_or_new(sk);

	if (!state)
		return;
	begin_call(sk, state, CC_CALL_ON_ACKED, acked, NULL);
	control_on_acked(&state->conn, acked, &state->control);
	state->report.acks++;
	control_report(&state->conn, &state->control, &state->report);
	end_call(sk, state, 0);
}

#ifdef CC_ON_RTT
SEC("struct_ops")
void BPF_PROG(on_pkts_acked, struct sock *sk, const struct ack_sample *sample)
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

SEC("struct_ops")
void on_cong_control(__u64 *ctx)
{
	struct cong_control_args args = cong_control_args(ctx);
	struct sock *sk = args.sk;
	struct socket_state *state = state_or_new(sk);
	struct cc_sample sample;

	if (!state)
		return;
	__builtin_memset(&sample, 0, sizeof(sample)); /* its padding, for a recording */
	load_sample(args.rs, &sample);
	begin_call(sk, state, CC_CALL_ON_ACK, 0, &sample);
	control_on_ack(&state->conn, &sample, &state->control);
	state->report.acks++;
	control_report(&state->conn, &state->control, &state->report);
	end_call(sk, state, 0);
}

SEC("struct_ops")
u32 BPF_PROG(on_sndbuf_expand, struct sock *sk)
{
	return control_sndbuf_expand();
}

#endif

#if !defined(CC_WINDOW_BASED) || defined(CC_ON_SEND)
/* Asked at each pass of the stack's write loop, before it looks at the rate. */
SEC("struct_ops")
u32 BPF_PROG(on_min_tso_segs, struct sock *sk)
{
#ifdef CC_ON_SEND
	struct socket_state *state = state_of(sk);

	if (state) {
		begin_call(sk, state, CC_CALL_ON_SEND, 0, NULL);
		control_on_send(&state->conn, &state->control);
		end_call(sk, state, 0);
	}
#endif
	return control_min_tso_segs(sk->sk_pacing_rate);
}
#endif

#ifdef CC_SET_STATE
SEC("struct_ops")
void BPF_PROG(on_set_state, struct sock *sk, u8 new_state)
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
SEC("struct_ops")
void BPF_PROG(on_cwnd_event, struct sock *sk, enum tcp_ca_event event)
{
	struct socket_state *state = state_of(sk);

	if (!state)
		return;
	begin_call(sk, state, CC_CALL_ON_EVENT, event, NULL);
	control_on_event(&state->conn, event, &state->control);
	end_call(sk, state, 0);
}
#endif

SEC("struct_ops")
u32 BPF_PROG(on_ssthresh, struct sock *sk)
{
	struct socket_state *state = state_of(sk);
	u32 ssthresh;

	if (!state) {
		ssthresh = tcp_sk(sk)->snd_cwnd / 2;
		return ssthresh > 2 ? ssthresh : 2;
	}
	begin_call(sk, state, CC_CALL_SSTHRESH, 0, NULL);
	ssthresh = control_ssthresh(&state->conn, &state->control);
	end_call(sk, state, ssthresh);
	return ssthresh;
}

SEC("struct_ops")
u32 BPF_PROG(on_undo_cwnd, struct sock *sk)
{
	struct socket_state *state = state_of(sk);
	u32 cwnd;

	if (!state)
		return tcp_sk(sk)->snd_cwnd;
	begin_call(sk, state, CC_CALL_UNDO_CWND, 0, NULL);
	cwnd = control_undo_cwnd(&state->conn, &state->control);
	end_call(sk, state, cwnd);
	return cwnd;
}

#define NAME_OF(name) #name
#define NAME(name) NAME_OF(name)

SEC(".struct_ops")
struct tcp_congestion_ops CC_NAME = {
    .init = (void *)on_init,
#ifdef CC_WINDOW_BASED
    .cong_avoid = (void *)on_cong_avoid,
#ifdef CC_ON_RTT
    .pkts_acked = (void *)on_pkts_acked,
#endif
#else
    .cong_control = (void *)on_cong_control,
    .sndbuf_expand = (void *)on_sndbuf_expand,
#endif
#if !defined(CC_WINDOW_BASED) || defined(CC_ON_SEND)
    .min_tso_segs = (void *)on_min_tso_segs,
#endif
#ifdef CC_SET_STATE
    .set_state = (void *)on_set_state,
#endif
#ifdef CC_ON_EVENT
    .cwnd_event = (void *)on_cwnd_event,
#endif
    .ssthresh = (void *)on_ssthresh,
    .undo_cwnd = (void *)on_undo_cwnd,
    .flags = TCP_CONG_NON_RESTRICTED,
    .name = NAME(CC_NAME),
};
