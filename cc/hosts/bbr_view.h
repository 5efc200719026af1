/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* What a policy beside the kernel's own BBR sees of it. Included by net/ipv4/tcp_bbr.c as well. */
#ifndef BROBUST_BBR_VIEW_H
#define BROBUST_BBR_VIEW_H

/* CC_MODE_PROBE_BW_UP. The other phases of PROBE_BW follow as version 3 counts them. */
#define BBR_VIEW_PROBE_BW_UP 4

struct bbr_view {
	u32 bw; /* packets per microsecond << 24 */
	u32 min_rtt_us;
	u32 pacing_gain; /* << 8 */
	u32 cwnd_gain;	 /* << 8 */
	u32 high_gain;	 /* << 8: the pacing gain of STARTUP */
	u8 mode;	 /* enum cc_mode */
};

#endif
