/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* The tree's own BBR, as net/ipv4/tcp_bbr_view.c shows it. */
#ifndef BROBUST_KERNEL_BBR_H
#define BROBUST_KERNEL_BBR_H

struct brobust_bbr {
	u32 bw; /* packets per microsecond << 24 */
	u32 min_rtt_us;
	u32 pacing_gain; /* << 8 */
	u8 mode;	 /* the first four of enum cc_mode */
};

extern const struct tcp_congestion_ops *const brobust_kernel_bbr;
void brobust_look_at_bbr(struct sock *sk, struct brobust_bbr *seen);

#endif
