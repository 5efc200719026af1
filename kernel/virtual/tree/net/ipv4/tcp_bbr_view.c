// SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause
/*
 * What arch/um/brobust/bbr_robust.c needs of the tree's own tcp_bbr.c, whose functions and state
 * are private. Included at that file's end.
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
