// SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause
/* The kernel's own BBR with cc/bbr1.h as its shadow, which shadow.h explains. */
#include "../../bbr1.h"

#define CC_NAME bbr_shadow
#define BBR bbr1
#include "../../bbr_control.h"

#include "kernel_bbr.h"

#define KERNEL(name) bbr_##name
#define bbr_cong_control bbr_main

/*
 * The kernel's random draws cannot be seen, but the effect of one can: the phase in which its gain
 * cycle began. Where the kernel has drawn nothing, ours must not draw either, or the phases differ.
 */
CC_INLINE u32 cc_random_below(struct cc_connection *conn, u32 below)
{
	conn->random_draws++;
	return conn->random[0] % below;
}

static __always_inline void infer_draw(struct sock *sk, struct cc_connection *conn)
{
	conn->random[0] =
	    (BBR1_CYCLE - BPF_CORE_READ_BITFIELD(bbr_of(sk), cycle_idx)) & (BBR1_CYCLE - 1);
}

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

#include "shadow.h"
