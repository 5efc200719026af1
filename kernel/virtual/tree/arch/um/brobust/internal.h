/* SPDX-License-Identifier: GPL-2.0-only */
/* What the kernel-side parts of a virtual-time kernel call of each other; brobust.h is the ABI. */
#ifndef BROBUST_INTERNAL_H
#define BROBUST_INTERNAL_H

#include <asm/byteorder.h>
#include <linux/in6.h>

#include "brobust.h"

extern unsigned long long time_travel_time; /* arch/um/kernel/time.c */

static inline u64 brobust_now(void)
{
	return time_travel_time;
}

static inline struct in6_addr brobust_ipv6_address(u32 number)
{
	return (struct in6_addr){
	    .s6_addr32 = {htonl(BROBUST_IPV6_PREFIX >> 32), 0, 0, htonl(number)}};
}

/* Return the number of the node that has this address; 0 if none can have it. */
static inline u32 brobust_number_of(const struct in6_addr *address)
{
	if (address->s6_addr32[0] != htonl(BROBUST_IPV6_PREFIX >> 32) || address->s6_addr32[1] ||
	    address->s6_addr32[2])
		return 0;
	return ntohl(address->s6_addr32[3]);
}

/* clock.c: what the other parts do in each exchange with the controller. They set it, since the
 * clock calls none of them by name. */
extern void (*brobust_before_exchange)(void); /* flows.c: what the flows have achieved */
extern void (*brobust_before_frames)(void);   /* arrivals.c: keeps the frames that still wait */
extern void (*brobust_after_exchange)(void);  /* netdev.c: takes the frames that were left */
void brobust_sleep_until(u64 when);

u64 brobust_vcpu_from(u32 vcpu, u64 t);
bool brobust_enter_vcpu(u32 vcpu);
bool brobust_may_advance_to(u64 at);
u64 brobust_rest_of_timeslice(void);
u64 brobust_until_event(void);

/* netdev.c */
int brobust_net_create(void);

/* flows.c */
int brobust_flows_start(void);
void brobust_flow_changed(u32 number); /* called by probe.c */
void brobust_read_sinks(void);	       /* called by netdev.c after the packets of an interrupt */

/* programs.c */
int brobust_programs_start(void);
struct pt_regs;
bool brobust_read_tsc(struct pt_regs *regs); /* called by trap.c */

/* work.c */
void brobust_accepted(int number);

/* probe.c: called by tcp_input.c and tcp_output.c. What our controls call of it is declared in
 * cc/hosts/module/virtual_kernel.h. */
struct sock;
void brobust_after_ack(struct sock *sk);
void brobust_after_send(const struct sock *sk, u32 bytes, u64 idle);

#endif
