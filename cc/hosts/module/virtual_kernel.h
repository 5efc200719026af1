/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* What the kernel of virtual time (kernel/virtual) offers to controls that are built into it. */
#ifndef BROBUST_VIRTUAL_KERNEL_H
#define BROBUST_VIRTUAL_KERNEL_H

#include "../bbr_view.h"

struct cc_call;
struct sock;
struct tcp_congestion_ops;

/* arch/um/brobust/probe.c */
void brobust_note_report(struct sock *sk, u64 deficit_acks, u32 mode);
bool brobust_records_calls(void);
void brobust_note_call(const struct cc_call *call);

#define BROBUST_NO_FLOW 32768 /* no flow has this number or a higher one */
u32 brobust_flow_of(const struct sock *sk);

/* net/ipv4/tcp_bbr_view.c */
extern const struct tcp_congestion_ops *const brobust_kernel_bbr;
void brobust_look_at_bbr(struct sock *sk, struct bbr_view *view);

#endif
