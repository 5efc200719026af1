// SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause
/*
 * What needs the tree's own tcp_bbr.c, whose functions and state are private:
 * arch/um/brobust/bbr_robust.c, and BBR under google's interface for TSO sizes. Included at that
 * file's end.
 */
#include "../../arch/um/brobust/kernel_bbr.h"

const struct tcp_congestion_ops *const brobust_kernel_bbr = &tcp_bbr_cong_ops;

void brobust_look_at_bbr(struct sock *sk, struct brobust_bbr *seen)
{
	const struct bbr *bbr = inet_csk_ca(sk);

	seen->bw = bbr_bw(sk);
	seen->min_rtt_us = bbr->min_rtt_us;
	seen->pacing_gain = bbr->pacing_gain;
	seen->mode = bbr->mode;
}

/*
 * google's kernels let BBR size its TSO packets. Its version 1 then sends what its pacing rate
 * makes in 2^-shift s, without what tcp_tso_autosize() adds on short paths; versions 2 and 3 add
 * as much as that does, so the kernel's own sizes are theirs.
 */
static bool control_sizes_tso;
module_param(control_sizes_tso, bool, 0444);

static u32 bbr_tso_segs(struct sock *sk, unsigned int mss_now)
{
	unsigned long bytes = READ_ONCE(sk->sk_pacing_rate) >> READ_ONCE(sk->sk_pacing_shift);

	bytes = min_t(unsigned long, bytes, sk->sk_gso_max_size);
	return max_t(u32, bytes / mss_now, bbr_min_tso_segs(sk));
}

/* Before bbr_robust.c copies the operations, and before a socket has them. */
static int __init bbr_take_tso_interface(void)
{
	if (control_sizes_tso)
		tcp_bbr_cong_ops.tso_segs = bbr_tso_segs;
	return 0;
}
subsys_initcall(bbr_take_tso_interface);
