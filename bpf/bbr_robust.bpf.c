// SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause
/*
 * bbr_robust: the kernel's own BBR with the Inflight Deficit repair beside it. cc/robust.h tells
 * the trouble and the rule.
 */
#include "../cc/robust.h"

#include "cong_control.h"
#include "kernel_bbr.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define BBR_HIGH_GAIN 739 /* of STARTUP, << 8 */

/* BBR fills its private area to the last byte, and the kernel takes no get_info from BPF. */
struct socket_state {
	struct cc_report report; /* first: crates/sockdiag reads it */
	struct robust robust;
};

#include "socket_state.h"

/* Only what the repair looks at, and what the report takes. */
static __always_inline void look(struct sock *sk, struct cc_connection *conn)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	conn->app_limited = tp->app_limited;
	conn->unsent_bytes = tp->write_seq - tp->snd_nxt;
	conn->mss = tp->mss_cache;
	conn->in_flight = tcp_packets_in_flight(tp);
	conn->max_pacing_rate = sk->sk_max_pacing_rate;
	conn->pacing_rate = sk->sk_pacing_rate;
}

static __always_inline void repair(struct sock *sk, const struct rate_sample *rs)
{
	struct socket_state *state =
	    bpf_sk_storage_get(&cc_state, sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);
	const struct bbr *bbr = bbr_of(sk);
	const struct bbr_model model = {
	    .bw = bbr_bw(bbr),
	    .min_rtt_us = bbr->min_rtt_us,
	    .pacing_gain = BPF_CORE_READ_BITFIELD(bbr, pacing_gain),
	    .high_gain = BBR_HIGH_GAIN,
	    .mode = BPF_CORE_READ_BITFIELD(bbr, mode),
	};
	const struct cc_sample sample = {.is_app_limited = rs->is_app_limited};
	struct cc_connection conn;

	if (!state) /* no memory: BBR as it is */
		return;
	look(sk, &conn);
	if (robust_on_ack(&conn, &sample, &model, &state->robust))
		sk->sk_pacing_rate = conn.pacing_rate;

	bbr_tell(bbr, &conn, &state->report);
	robust_report(&state->robust, &state->report);
}

SEC("struct_ops")
void bbr_robust_main(__u64 *ctx)
{
	struct cong_control_args args = cong_control_args(ctx);

	bbr_main(&args);
	if (robust_repair)
		repair(args.sk, args.rs);
}

SEC("struct_ops")
void BPF_PROG(bbr_robust_init, struct sock *sk)
{
	bbr_init(sk);
}

/* BBR sets the rate here too, but only when the application was the limit, which is no deficit. */
SEC("struct_ops")
void BPF_PROG(bbr_robust_cwnd_event, struct sock *sk, enum tcp_ca_event event)
{
	bbr_cwnd_event(sk, event);
}

SEC("struct_ops")
void BPF_PROG(bbr_robust_set_state, struct sock *sk, __u8 new_state)
{
	bbr_set_state(sk, new_state);
}

SEC("struct_ops")
__u32 BPF_PROG(bbr_robust_ssthresh, struct sock *sk)
{
	return bbr_ssthresh(sk);
}

SEC("struct_ops")
__u32 BPF_PROG(bbr_robust_undo_cwnd, struct sock *sk)
{
	return bbr_undo_cwnd(sk);
}

SEC("struct_ops")
__u32 BPF_PROG(bbr_robust_min_tso_segs, struct sock *sk)
{
	return bbr_min_tso_segs(sk);
}

SEC("struct_ops")
__u32 BPF_PROG(bbr_robust_sndbuf_expand, struct sock *sk)
{
	return bbr_sndbuf_expand(sk);
}

SEC(".struct_ops")
struct tcp_congestion_ops bbr_robust = {
    .init = (void *)bbr_robust_init,
    .cong_control = (void *)bbr_robust_main,
    .cwnd_event = (void *)bbr_robust_cwnd_event,
    .set_state = (void *)bbr_robust_set_state,
    .ssthresh = (void *)bbr_robust_ssthresh,
    .undo_cwnd = (void *)bbr_robust_undo_cwnd,
    .min_tso_segs = (void *)bbr_robust_min_tso_segs,
    .sndbuf_expand = (void *)bbr_robust_sndbuf_expand,
    .flags = TCP_CONG_NON_RESTRICTED,
    .name = "bbr_robust",
};
