// SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause
/* The kernel's own CUBIC with cc/cubic.h as its shadow, which shadow.h explains. */
#define CC_NAME cubic_shadow
#include "../../cubic_control.h"

#include "kernel.h"

#define KERNEL(name) cubic_shadow_##name
#define cubic_shadow_init cubictcp_init
#define cubic_shadow_ssthresh cubictcp_recalc_ssthresh
#define cubic_shadow_cong_avoid cubictcp_cong_avoid
#define cubic_shadow_set_state cubictcp_state
#define cubic_shadow_pkts_acked cubictcp_acked
#define cubic_shadow_undo_cwnd tcp_reno_undo_cwnd

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

/* The state of net/ipv4/tcp_cubic.c, which lies in icsk_ca_priv. */
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
/* It reacts to one event only, the start of sending, in a function of either name. */
extern void cubictcp_cwnd_event(struct sock *sk, enum tcp_ca_event event) __weak __ksym;
extern void cubictcp_cwnd_event_tx_start(struct sock *sk) __weak __ksym;
extern void cubictcp_acked(struct sock *sk, const struct ack_sample *sample) __ksym;
extern __u32 tcp_reno_undo_cwnd(struct sock *sk) __ksym;

static __always_inline void cubic_shadow_event(struct sock *sk, enum tcp_ca_event event)
{
	if (!tx_start_is_separate)
		cubictcp_cwnd_event(sk, event);
	else if (event == CA_EVENT_TX_START)
		cubictcp_cwnd_event_tx_start(sk);
}

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

/* CUBIC draws nothing. */
static __always_inline void infer_draw(struct sock *sk, struct cc_connection *conn)
{
}

#include "shadow.h"
