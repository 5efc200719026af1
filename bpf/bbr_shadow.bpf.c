// SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause
/* The kernel's own BBR, with cc/bbr1.h as its shadow: bpf/shadow.h. */
#include "../cc/bbr1.h"
#define BBR bbr1
#include "../cc/bbr_control.h"

#include "cong_control.h"
#include "kernel_bbr.h"

struct shadow_model {
	u32 mode;
	u32 pacing_gain;
	u32 cwnd_gain;
	u32 max_bw;
	u32 min_rtt_us;
	u32 cycle;
	u32 prior_cwnd;
	u32 full_bw;
	u32 policer_bw;
	u32 min_rtt_ticks;
	u32 probe_rtt_ticks;
};

#include "shadow.h"

/*
 * The kernel's draws are not seen, but what it made of one is: the phase in which its gain cycle
 * began. Where it has drawn none, ours must not either: its phase would differ.
 */
CC_INLINE u32 cc_random_below(struct cc_connection *conn, u32 below)
{
	conn->random_draws++;
	return conn->random[0] % below;
}

static __always_inline void guess_draw(struct sock *sk, struct cc_connection *conn)
{
	conn->random[0] =
	    (BBR1_CYCLE - BPF_CORE_READ_BITFIELD(bbr_of(sk), cycle_idx)) & (BBR1_CYCLE - 1);
}

static __always_inline void kernel_model(struct sock *sk, struct shadow_model *model)
{
	const struct bbr *bbr = bbr_of(sk);

	model->mode = BPF_CORE_READ_BITFIELD(bbr, mode);
	model->pacing_gain = BPF_CORE_READ_BITFIELD(bbr, pacing_gain);
	model->cwnd_gain = BPF_CORE_READ_BITFIELD(bbr, cwnd_gain);
	model->max_bw = bbr->bw.s[0].v;
	model->min_rtt_us = bbr->min_rtt_us;
	model->cycle = BPF_CORE_READ_BITFIELD(bbr, cycle_idx);
	model->prior_cwnd = bbr->prior_cwnd;
	model->full_bw = bbr->full_bw;
	model->policer_bw = bbr->lt_bw;
	model->min_rtt_ticks = bbr->min_rtt_stamp;
	model->probe_rtt_ticks = bbr->probe_rtt_done_stamp;
}

static __always_inline void our_model(const struct control *control, struct shadow_model *model)
{
	const struct bbr1 *bbr = &control->bbr;

	model->mode = bbr->mode;
	model->pacing_gain = bbr->pacing_gain;
	model->cwnd_gain = bbr->cwnd_gain;
	model->max_bw = bbr1_max_bw(bbr);
	model->min_rtt_us = bbr->min_rtt_us;
	model->cycle = bbr->cycle;
	model->prior_cwnd = bbr->prior_cwnd;
	model->full_bw = bbr->full_bw;
	model->policer_bw = bbr->policer_bw;
	model->min_rtt_ticks = bbr->min_rtt_ticks;
	model->probe_rtt_ticks = bbr->probe_rtt_ticks;
}

SEC("struct_ops")
void BPF_PROG(shadow_init, struct sock *sk)
{
	struct socket_state *state;

	bpf_sk_storage_delete(&cc_state, sk);
	state = bpf_sk_storage_get(&cc_state, sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);
	if (state)
		load_connection(sk, &state->conn);
	bbr_init(sk);
	if (!state)
		return;
	COMPARE(sk, state, SHADOW_INIT, 0, (control_init(&state->conn, &state->control), 0));
}

SEC("struct_ops")
void shadow_main(__u64 *ctx)
{
	struct cong_control_args args = cong_control_args(ctx);
	struct socket_state *state = state_of(args.sk);
	struct cc_sample sample = {0};

	if (state) {
		load_connection(args.sk, &state->conn);
		load_sample(args.rs, &sample);
	}
	bbr_main(&args);
	if (!state)
		return;
	guess_draw(args.sk, &state->conn);
	COMPARE(args.sk, state, SHADOW_ON_ACK, 0,
		(control_on_ack(&state->conn, &sample, &state->control), 0));
	state->report.acks++;
	control_report(&state->conn, &state->control, &state->report);
}

SEC("struct_ops")
void BPF_PROG(shadow_cwnd_event, struct sock *sk, enum tcp_ca_event event)
{
	struct socket_state *state = state_of(sk);

	if (state)
		load_connection(sk, &state->conn);
	bbr_cwnd_event(sk, event);
	if (!state)
		return;
	guess_draw(sk, &state->conn);
	COMPARE(sk, state, SHADOW_ON_EVENT, 0,
		(control_on_event(&state->conn, event, &state->control), 0));
}

SEC("struct_ops")
void BPF_PROG(shadow_set_state, struct sock *sk, __u8 new_state)
{
	struct socket_state *state = state_of(sk);

	if (state)
		load_connection(sk, &state->conn);
	bbr_set_state(sk, new_state);
	if (!state)
		return;
	guess_draw(sk, &state->conn);
	COMPARE(sk, state, SHADOW_SET_STATE, 0,
		(control_set_state(&state->conn, new_state, &state->control), 0));
}

SEC("struct_ops")
__u32 BPF_PROG(shadow_ssthresh, struct sock *sk)
{
	struct socket_state *state = state_of(sk);
	u32 ssthresh;

	if (state)
		load_connection(sk, &state->conn);
	ssthresh = bbr_ssthresh(sk);
	if (state)
		COMPARE(sk, state, SHADOW_SSTHRESH, ssthresh,
			control_ssthresh(&state->conn, &state->control));
	return ssthresh;
}

SEC("struct_ops")
__u32 BPF_PROG(shadow_undo_cwnd, struct sock *sk)
{
	struct socket_state *state = state_of(sk);
	u32 cwnd;

	if (state)
		load_connection(sk, &state->conn);
	cwnd = bbr_undo_cwnd(sk);
	if (state)
		COMPARE(sk, state, SHADOW_UNDO_CWND, cwnd,
			control_undo_cwnd(&state->conn, &state->control));
	return cwnd;
}

SEC("struct_ops")
__u32 BPF_PROG(shadow_min_tso_segs, struct sock *sk)
{
	struct socket_state *state = state_of(sk);
	u32 segs = bbr_min_tso_segs(sk);

	if (!state)
		return segs;
	load_connection(sk, &state->conn);
	COMPARE(sk, state, SHADOW_MIN_TSO_SEGS, segs,
		control_min_tso_segs(state->conn.pacing_rate));
	return segs;
}

SEC("struct_ops")
__u32 BPF_PROG(shadow_sndbuf_expand, struct sock *sk)
{
	struct socket_state *state = state_of(sk);
	u32 windows = bbr_sndbuf_expand(sk);

	if (!state)
		return windows;
	load_connection(sk, &state->conn);
	COMPARE(sk, state, SHADOW_SNDBUF_EXPAND, windows, control_sndbuf_expand());
	return windows;
}

SEC(".struct_ops")
struct tcp_congestion_ops bbr_shadow = {
    .init = (void *)shadow_init,
    .cong_control = (void *)shadow_main,
    .cwnd_event = (void *)shadow_cwnd_event,
    .set_state = (void *)shadow_set_state,
    .ssthresh = (void *)shadow_ssthresh,
    .undo_cwnd = (void *)shadow_undo_cwnd,
    .min_tso_segs = (void *)shadow_min_tso_segs,
    .sndbuf_expand = (void *)shadow_sndbuf_expand,
    .flags = TCP_CONG_NON_RESTRICTED,
    .name = "bbr_shadow",
};
