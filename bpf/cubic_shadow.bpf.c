// SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause
/* The kernel's own CUBIC, with cc/cubic.h as its shadow: bpf/shadow.h. */
#include "../cc/cubic_control.h"

struct shadow_model {
	u32 per_packet;
	u32 max;
	u32 last_cwnd;
	u32 origin;
	u32 k;
	u32 min_rtt_us;
	u32 epoch_ticks;
	u32 reno_cwnd;
	u32 found;
	u32 last_ticks;
};

#include "shadow.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

/* net/ipv4/tcp_cubic.c; lies in icsk_ca_priv. */
struct bictcp {
	__u32 cnt;
	__u32 last_max_cwnd;
	__u32 last_cwnd;
	__u32 last_time;
	__u32 bic_origin_point;
	__u32 bic_K;
	__u32 delay_min;
	__u32 epoch_start;
	__u32 tcp_cwnd;
	__u8 found;
};

#pragma clang attribute pop

extern void cubictcp_init(struct sock *sk) __ksym;
extern __u32 cubictcp_recalc_ssthresh(struct sock *sk) __ksym;
extern void cubictcp_cong_avoid(struct sock *sk, __u32 ack, __u32 acked) __ksym;
extern void cubictcp_state(struct sock *sk, __u8 new_state) __ksym;
extern void cubictcp_cwnd_event(struct sock *sk, enum tcp_ca_event event) __ksym;
extern void cubictcp_acked(struct sock *sk, const struct ack_sample *sample) __ksym;
extern __u32 tcp_reno_undo_cwnd(struct sock *sk) __ksym;

static __always_inline void kernel_model(struct sock *sk, struct shadow_model *model)
{
	const struct bictcp *cubic = inet_csk_ca(sk);

	model->per_packet = cubic->cnt;
	model->max = cubic->last_max_cwnd;
	model->last_cwnd = cubic->last_cwnd;
	model->origin = cubic->bic_origin_point;
	model->k = cubic->bic_K;
	model->min_rtt_us = cubic->delay_min;
	model->epoch_ticks = cubic->epoch_start;
	model->reno_cwnd = cubic->tcp_cwnd;
	model->found = cubic->found;
	model->last_ticks = cubic->last_time;
}

static __always_inline void our_model(const struct control *control, struct shadow_model *model)
{
	const struct cubic *cubic = &control->cubic;

	model->per_packet = cubic->per_packet;
	model->max = cubic->max;
	model->last_cwnd = cubic->last_cwnd;
	model->origin = cubic->origin;
	model->k = cubic->k;
	model->min_rtt_us = cubic->min_rtt_us;
	model->epoch_ticks = cubic->epoch_ticks;
	model->reno_cwnd = cubic->reno_cwnd;
	model->found = cubic->found;
	model->last_ticks = cubic->last_ticks;
}

SEC("struct_ops")
void BPF_PROG(shadow_init, struct sock *sk)
{
	struct socket_state *state;

	bpf_sk_storage_delete(&cc_state, sk);
	state = bpf_sk_storage_get(&cc_state, sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);
	if (state)
		load_connection(sk, &state->conn);
	cubictcp_init(sk);
	if (!state)
		return;
	COMPARE(sk, state, SHADOW_INIT, 0, (control_init(&state->conn, &state->control), 0));
}

SEC("struct_ops")
void BPF_PROG(shadow_cong_avoid, struct sock *sk, __u32 ack, __u32 acked)
{
	struct socket_state *state = state_of(sk);

	if (state)
		load_connection(sk, &state->conn);
	cubictcp_cong_avoid(sk, ack, acked);
	if (!state)
		return;
	COMPARE(sk, state, SHADOW_ON_ACK, 0,
		(control_on_acked(&state->conn, acked, &state->control), 0));
	state->report.acks++;
	control_report(&state->conn, &state->control, &state->report);
}

SEC("struct_ops")
void BPF_PROG(shadow_pkts_acked, struct sock *sk, const struct ack_sample *sample)
{
	struct socket_state *state = state_of(sk);

	if (state)
		load_connection(sk, &state->conn);
	cubictcp_acked(sk, sample);
	if (!state || sample->rtt_us < 0)
		return;
	COMPARE(sk, state, SHADOW_ON_RTT, 0,
		(control_on_rtt(&state->conn, sample->rtt_us, &state->control), 0));
}

SEC("struct_ops")
void BPF_PROG(shadow_cwnd_event, struct sock *sk, enum tcp_ca_event event)
{
	struct socket_state *state = state_of(sk);

	if (state)
		load_connection(sk, &state->conn);
	cubictcp_cwnd_event(sk, event);
	if (!state)
		return;
	COMPARE(sk, state, SHADOW_ON_EVENT, 0,
		(control_on_event(&state->conn, event, &state->control), 0));
}

SEC("struct_ops")
void BPF_PROG(shadow_set_state, struct sock *sk, __u8 new_state)
{
	struct socket_state *state = state_of(sk);

	if (state)
		load_connection(sk, &state->conn);
	cubictcp_state(sk, new_state);
	if (!state)
		return;
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
	ssthresh = cubictcp_recalc_ssthresh(sk);
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
	cwnd = tcp_reno_undo_cwnd(sk);
	if (state)
		COMPARE(sk, state, SHADOW_UNDO_CWND, cwnd,
			control_undo_cwnd(&state->conn, &state->control));
	return cwnd;
}

SEC(".struct_ops")
struct tcp_congestion_ops cubic_shadow = {
    .init = (void *)shadow_init,
    .cong_avoid = (void *)shadow_cong_avoid,
    .pkts_acked = (void *)shadow_pkts_acked,
    .cwnd_event = (void *)shadow_cwnd_event,
    .set_state = (void *)shadow_set_state,
    .ssthresh = (void *)shadow_ssthresh,
    .undo_cwnd = (void *)shadow_undo_cwnd,
    .flags = TCP_CONG_NON_RESTRICTED,
    .name = "cubic_shadow",
};
