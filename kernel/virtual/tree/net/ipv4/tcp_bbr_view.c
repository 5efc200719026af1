// SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause
/*
 * Included at the end of the tree's own tcp_bbr.c, whose functions and state are private: what
 * policies beside it need of them (arch/um/brobust/cc/beside_kernel_bbr), and BBR under google's
 * interface for TSO sizes.
 */
#include "../../arch/um/brobust/cc/hosts/module/virtual_kernel.h"

const struct tcp_congestion_ops *const brobust_kernel_bbr = &tcp_bbr_cong_ops;

/* google's version 3 defines BBR_VERSION; mainline's version 1 does not. */
#if defined(BBR_VERSION) && BBR_VERSION >= 3
#define BROBUST_HIGH_GAIN bbr_startup_pacing_gain
#else
#define BROBUST_HIGH_GAIN bbr_high_gain
#endif

void brobust_look_at_bbr(struct sock *sk, struct bbr_view *view)
{
	const struct bbr *bbr = inet_csk_ca(sk);

	view->bw = bbr_bw(sk);
	view->min_rtt_us = bbr->min_rtt_us;
	view->pacing_gain = bbr->pacing_gain;
	view->cwnd_gain = bbr->cwnd_gain;
	view->high_gain = BROBUST_HIGH_GAIN;
	view->mode = bbr->mode;
#if defined(BBR_VERSION) && BBR_VERSION >= 3
	if (bbr->mode == BBR_PROBE_BW)
		view->mode = BBR_VIEW_PROBE_BW_UP + bbr->cycle_idx;
#endif
}

/*
 * google's kernels let BBR size its TSO packets. Version 1 then sends what its pacing rate yields
 * in 2^-shift s, without what tcp_tso_autosize() adds on short paths. Versions 2 and 3 add as much
 * as that function does, so their sizes are the kernel's own.
 */
static bool control_sizes_tso;
module_param(control_sizes_tso, bool, 0444);

static u32 brobust_tso_segs(struct sock *sk, unsigned int mss_now)
{
	unsigned long rate = READ_ONCE(sk->sk_pacing_rate);
	unsigned long bytes = rate >> READ_ONCE(sk->sk_pacing_shift);

	bytes = min_t(unsigned long, bytes, sk->sk_gso_max_size);
	return max_t(u32, bytes / mss_now, rate < 1200000 / 8 ? 1 : 2);
}

/* This runs before a policy copies the operations, and before a socket has them. In google's own
 * kernels BBR has the interface anyway. */
static int __init brobust_take_tso_interface(void)
{
	if (control_sizes_tso && !tcp_bbr_cong_ops.tso_segs)
		tcp_bbr_cong_ops.tso_segs = brobust_tso_segs;
	return 0;
}
subsys_initcall(brobust_take_tso_interface);
