/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/*
 * The running kernel's own BBR (net/ipv4/tcp_bbr.c, version 1): its functions and its state.
 *
 * struct bbr lies in icsk_ca_priv. It is in the BTF of vmlinux if BBR is built in and of tcp_bbr if
 * it is a module; libbpf finds it in either. The fields below have kept their places from Linux 6.1
 * to 7.2. The accesses are relocated all the same: that costs nothing, and the loader can say
 * which field a kernel lacks (BBR version 3, for example, has no "bw").
 */
#ifndef BROBUST_KERNEL_BBR_H
#define BROBUST_KERNEL_BBR_H

#include "../bbr_view.h"
#include "kernel.h"

#define BBR_HIGH_GAIN 739 /* STARTUP's, << 8 */

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct bbr {
	__u32 min_rtt_us;	       /* ~0: no sample yet */
	__u32 min_rtt_stamp;	       /* jiffies */
	__u32 probe_rtt_done_stamp;    /* jiffies */
	struct minmax bw;	       /* packets per microsecond << 24 */
	__u32 mode : 3, lt_use_bw : 1; /* the first four of enum cc_mode */
	__u32 lt_bw;
	__u32 pacing_gain : 10, cwnd_gain : 10; /* << 8 */
	__u32 cycle_idx : 3;			/* phase of PROBE_BW */
	__u32 prior_cwnd;
	__u32 full_bw;
};

#pragma clang attribute pop

extern void bbr_init(struct sock *sk) __ksym;
extern __u32 bbr_sndbuf_expand(struct sock *sk) __ksym;
extern __u32 bbr_undo_cwnd(struct sock *sk) __ksym;
/* It reacts to one event only, the start of sending, in a function of either name. */
extern void bbr_cwnd_event(struct sock *sk, enum tcp_ca_event event) __weak __ksym;
extern void bbr_cwnd_event_tx_start(struct sock *sk) __weak __ksym;
extern __u32 bbr_ssthresh(struct sock *sk) __ksym;
extern __u32 bbr_min_tso_segs(struct sock *sk) __ksym;
extern void bbr_set_state(struct sock *sk, __u8 new_state) __ksym;
/* libbpf ignores ___ and what follows it, and binds the one with the parameters of the kernel's. */
extern void bbr_main___rs(struct sock *sk, const struct rate_sample *rs) __weak __ksym;
extern void bbr_main___ack(struct sock *sk, __u32 ack, int flag,
			   const struct rate_sample *rs) __weak __ksym;

static __always_inline void bbr_main(const struct cong_control_args *args)
{
	if (cong_control_has_ack)
		bbr_main___ack(args->sk, args->ack, args->flag, args->rs);
	else
		bbr_main___rs(args->sk, args->rs);
}

static __always_inline void bbr_event(struct sock *sk, enum tcp_ca_event event)
{
	if (!tx_start_is_separate)
		bbr_cwnd_event(sk, event);
	else if (event == CA_EVENT_TX_START)
		bbr_cwnd_event_tx_start(sk);
}

static __always_inline const struct bbr *bbr_of(struct sock *sk)
{
	return inet_csk_ca(sk);
}

/* The bandwidth that BBR works with is that of a policer where it sees one, else the maximum of ten
 * rounds. */
static __always_inline void look_at_bbr(struct sock *sk, struct bbr_view *view)
{
	const struct bbr *bbr = bbr_of(sk);

	view->bw = BPF_CORE_READ_BITFIELD(bbr, lt_use_bw) ? bbr->lt_bw : bbr->bw.s[0].v;
	view->min_rtt_us = bbr->min_rtt_us;
	view->pacing_gain = BPF_CORE_READ_BITFIELD(bbr, pacing_gain);
	view->cwnd_gain = BPF_CORE_READ_BITFIELD(bbr, cwnd_gain);
	view->high_gain = BBR_HIGH_GAIN;
	view->mode = BPF_CORE_READ_BITFIELD(bbr, mode);
}

#endif
