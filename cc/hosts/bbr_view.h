/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* What a policy beside the kernel's own BBR sees of it. Included by net/ipv4/tcp_bbr.c as well. */
#ifndef BROBUST_BBR_VIEW_H
#define BROBUST_BBR_VIEW_H

struct bbr_view {
	u32 bw; /* packets per microsecond << 24 */
	u32 min_rtt_us;
	u32 pacing_gain; /* << 8 */
	u32 cwnd_gain;	 /* << 8 */
	u8 mode;	 /* the first four of enum cc_mode */
};

#endif
