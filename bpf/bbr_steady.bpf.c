// SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause
/*
 * bbr_steady: the kernel's own BBR with its pacing schedule kept on average. cc/steady.h tells the
 * trouble and the rule.
 */
#include "../cc/steady.h"

#include "cong_control.h"
#include "connection.h"
#include "kernel_bbr.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* BBR fills its private area to the last byte, and the kernel takes no get_info from BPF. */
struct socket_state {
	struct cc_report report; /* first: crates/sockdiag reads it */
	struct cc_connection conn;
	struct steady steady;
};

#include "socket_state.h"

/* All that the repair may set. */
static __always_inline void store(struct sock *sk, const struct cc_connection *conn)
{
	tcp_sk(sk)->snd_cwnd = conn->cwnd;
	sk->sk_pacing_rate = conn->pacing_rate;
}

/* The socket's state, with the connection as it is now; NULL where there was no memory for it. */
static __always_inline struct socket_state *look(struct sock *sk)
{
	struct socket_state *state = state_of(sk);

	if (state)
		load_connection(sk, &state->conn);
	return state;
}

/* Around each of BBR's functions that looks at rate or window. */
static __always_inline void before_bbr(struct sock *sk)
{
	struct socket_state *state = look(sk);

	if (!state)
		return;
	steady_before(&state->conn, &state->steady);
	store(sk, &state->conn);
}

static __always_inline void after_bbr(struct sock *sk)
{
	struct socket_state *state = look(sk);

	if (!state)
		return;
	steady_after(&state->conn, &state->steady);
	store(sk, &state->conn);
}

static __always_inline void before_ack(struct sock *sk, const struct cc_sample *sample)
{
	struct socket_state *state = look(sk);

	if (!state)
		return;
	steady_before_ack(&state->conn, sample, &state->steady);
	store(sk, &state->conn);
}

static __always_inline void after_ack(struct sock *sk, const struct cc_sample *sample)
{
	struct socket_state *state = look(sk);
	const struct bbr *bbr = bbr_of(sk);
	const struct bbr_model model = {
	    .bw = bbr_bw(bbr),
	    .mode = BPF_CORE_READ_BITFIELD(bbr, mode),
	};

	if (!state)
		return;
	steady_on_ack(&state->conn, sample, &model, &state->steady);
	store(sk, &state->conn);

	bbr_tell(bbr, &state->conn, &state->report);
	steady_report(&state->steady, &state->report);
}

SEC("struct_ops")
void bbr_steady_main(__u64 *ctx)
{
	struct cong_control_args args = cong_control_args(ctx);
	struct cc_sample sample;

	load_sample(args.rs, &sample);
	before_ack(args.sk, &sample);
	bbr_main(&args);
	after_ack(args.sk, &sample);
}

SEC("struct_ops")
void BPF_PROG(bbr_steady_init, struct sock *sk)
{
	struct socket_state *state;

	bbr_init(sk);
	/* A socket may come back to a control that it has had: then its state begins anew. */
	bpf_sk_storage_delete(&cc_state, sk);
	state = bpf_sk_storage_get(&cc_state, sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);
	if (!state) /* no memory: BBR as it is */
		return;
	load_connection(sk, &state->conn);
	steady_init(&state->conn, &state->steady);
}

/* Asked at each pass of the stack's write loop, before it looks at the rate. */
SEC("struct_ops")
__u32 BPF_PROG(bbr_steady_min_tso_segs, struct sock *sk)
{
	struct socket_state *state = look(sk);

	if (state) {
		steady_on_send(&state->conn, &state->steady);
		sk->sk_pacing_rate = state->conn.pacing_rate;
	}
	return bbr_min_tso_segs(sk);
}

SEC("struct_ops")
void BPF_PROG(bbr_steady_cwnd_event, struct sock *sk, enum tcp_ca_event event)
{
	before_bbr(sk);
	bbr_cwnd_event(sk, event);
	after_bbr(sk);
}

SEC("struct_ops")
void BPF_PROG(bbr_steady_set_state, struct sock *sk, __u8 new_state)
{
	before_bbr(sk);
	bbr_set_state(sk, new_state);
	after_bbr(sk);
}

SEC("struct_ops")
__u32 BPF_PROG(bbr_steady_ssthresh, struct sock *sk)
{
	__u32 ssthresh;

	before_bbr(sk);
	ssthresh = bbr_ssthresh(sk);
	after_bbr(sk);
	return ssthresh;
}

SEC("struct_ops")
__u32 BPF_PROG(bbr_steady_undo_cwnd, struct sock *sk)
{
	before_bbr(sk);
	return bbr_undo_cwnd(sk);
}

SEC("struct_ops")
__u32 BPF_PROG(bbr_steady_sndbuf_expand, struct sock *sk)
{
	return bbr_sndbuf_expand(sk);
}

SEC(".struct_ops")
struct tcp_congestion_ops bbr_steady = {
    .init = (void *)bbr_steady_init,
    .cong_control = (void *)bbr_steady_main,
    .min_tso_segs = (void *)bbr_steady_min_tso_segs,
    .cwnd_event = (void *)bbr_steady_cwnd_event,
    .set_state = (void *)bbr_steady_set_state,
    .ssthresh = (void *)bbr_steady_ssthresh,
    .undo_cwnd = (void *)bbr_steady_undo_cwnd,
    .sndbuf_expand = (void *)bbr_steady_sndbuf_expand,
    .flags = TCP_CONG_NON_RESTRICTED,
    .name = "bbr_steady",
};
