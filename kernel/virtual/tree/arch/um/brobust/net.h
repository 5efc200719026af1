/* SPDX-License-Identifier: GPL-2.0-only */
/* What the kernel-side parts of a virtual-time kernel call of each other. */
#ifndef BROBUST_NET_H
#define BROBUST_NET_H

#include "brobust.h"

struct cc_call;
struct sock;

static inline u64 brobust_now(void)
{
	extern unsigned long long time_travel_time;

	return time_travel_time;
}

/* netdev.c */
int brobust_net_create(void);
void brobust_net_receive(void); /* takes the frames that the controller left */

/* flows.c */
void brobust_sleep_until(u64 when);
int brobust_flows_start(void);
void brobust_flows_report(void);

/* programs.c */
int brobust_programs_start(void);

/* probe.c: called by tcp_input.c, and by our controls */
void brobust_after_ack(struct sock *sk);
void brobust_after_send(const struct sock *sk, u32 bytes, u64 idle); /* by tcp_output.c */
void brobust_note_report(struct sock *sk, u64 deficit_acks, u32 mode);
bool brobust_records_calls(void);
void brobust_note_call(const struct cc_call *call);
u32 brobust_deficits_of(const struct sock *sk); /* as last reported */
u32 brobust_flow_of(const struct sock *sk);	/* its number, or BROBUST_FLOWS */

#endif
