/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/*
 * The switches of "Are Mobiles Ready for BBR?" (Vargas, Gunapati, Gandhi, Balasubramanian, 2022),
 * section 5, which calls the kernel module "master": each part of BBR can be switched off or fixed,
 * to see what each part costs a slow CPU. Without a switch it is BBR, version 1. (The prefix
 * master_ is part of the parameters' names.)
 *
 *	model off	(5.1.1)	an ACK changes nothing but what is fixed below
 *	fixed cwnd	(5.1)
 *	fixed rate	(5.1.2)
 *	pacing off	(5.2.1)	the rate still sizes the bursts
 *	pacing stride	(6.2)	bursts and the gaps between them are this many times as large
 */
#ifndef BROBUST_CC_SWITCHABLE_H
#define BROBUST_CC_SWITCHABLE_H

#include "bbr1.h"

CC_PARAM(master_model, 1, 0, 1, CC_SWITCH, "use BBR's model")
CC_PARAM(master_cwnd, 0, 0, 1000000, CC_PACKETS, "fixed cwnd; 0: the model's")
CC_PARAM(master_pacing, 1, 0, 1, CC_SWITCH, "let the stack pace")
CC_PARAM(master_rate, 0, 0, 4000000000U, CC_BITS_PER_SECOND, "fixed pacing rate; 0: the model's")
/* The stack has to support it: only the kernel of virtual time does; elsewhere it must be 1. */
CC_PARAM(master_stride, 1, 1, 255, CC_TIMES, "pacing stride; in virtual time only")

struct master {
	struct bbr1 bbr;
};

CC_INLINE void master_fix(struct cc_connection *conn)
{
	if (master_cwnd)
		conn->cwnd = cc_min(master_cwnd, conn->cwnd_clamp);
	if (master_rate)
		conn->pacing_rate = cc_min64(master_rate / 8, conn->max_pacing_rate);
}

CC_INLINE void master_init(struct cc_connection *conn, struct master *master)
{
	bbr1_init(conn, &master->bbr);
	conn->wants_pacing = (u8)master_pacing;
	conn->pacing_stride = (u8)master_stride;
	master_fix(conn);
}

CC_INLINE void master_on_ack(struct cc_connection *conn, const struct cc_sample *sample,
			     struct master *master)
{
	if (master_model)
		bbr1_on_ack(conn, sample, &master->bbr);
	master_fix(conn);
}

/* BBR sets a rate here too, and goes back to a window. */
CC_INLINE void master_on_event(struct cc_connection *conn, u32 event, struct master *master)
{
	if (master_model)
		bbr1_on_event(conn, event, &master->bbr);
	master_fix(conn);
}

CC_INLINE void master_set_state(struct cc_connection *conn, u8 state, struct master *master)
{
	if (master_model)
		bbr1_set_state(conn, state, &master->bbr);
}

CC_INLINE u32 master_ssthresh(struct cc_connection *conn, struct master *master)
{
	return bbr1_ssthresh(conn, &master->bbr);
}

CC_INLINE u32 master_undo_cwnd(struct cc_connection *conn, struct master *master)
{
	return bbr1_undo_cwnd(conn, &master->bbr);
}

CC_INLINE void master_report(const struct cc_connection *conn, const struct master *master,
			     struct cc_report *report)
{
	bbr1_report(conn, &master->bbr, report);
}

#endif
