/* SPDX-License-Identifier: GPL-2.0-only */
/* arrivals.c: the packets that arrive, in the order in which they do. */
#ifndef BROBUST_ARRIVALS_H
#define BROBUST_ARRIVALS_H

#include <linux/skbuff.h>

/* When a packet arrives, or is freed after it was sent. */
static inline u64 *brobust_due(struct sk_buff *skb)
{
	return (u64 *)skb->cb;
}

int brobust_arrivals_start(struct net_device *dev);

/* Return when the packet with this number arrives, 1 for the next one; U64_MAX where there is none. */
u64 brobust_arrival(u32 number);

/* Take the next packet. Return NULL without memory for it: the packet is lost then. */
struct sk_buff *brobust_take_arrival(void);

/* Lose what has arrived beyond so many packets. Return how many were lost. */
u32 brobust_drop_arrivals(u32 room);

#endif
