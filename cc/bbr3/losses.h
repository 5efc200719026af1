/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/*
 * BBR version 3: losses (section 5.5.10.2), as google's stack tells them, or derived from what
 * mainline's stack tells.
 *
 * The draft, and the stack that google's code needs, keep with each packet how much was in flight
 * and how much had been lost when it was sent, and call the control for each lost packet. Modules in
 * such a kernel use that (bbr3_stack_signals). Mainline does not, so there every host derives in
 * the same way:
 *	- packets in flight when a packet was sent: those delivered from then to its own delivery,
 *	  and those lost in between (on a path that keeps the order that is the same);
 *	- packets lost since it was sent: from the steps of the connection's count of losses;
 *	- the packet that was lost: losses are seen once per ACK, so the point at which they pass
 *	  the threshold is found within the losses of one ACK, not within one burst; and those of a
 *	  timeout are seen when the stack enters that state.
 */
#ifndef BROBUST_CC_BBR3_LOSSES_H
#define BROBUST_CC_BBR3_LOSSES_H

#include "values.h"

/* A step of the count of losses; only the last ones are remembered. */
static void bbr3_note_losses(const struct cc_connection *conn, struct bbr3 *bbr)
{
	u32 step = bbr->loss_step & (BBR3_LOSS_STEPS - 1);

	if (conn->lost == bbr->lost)
		return;
	bbr->loss_steps[step].delivered = conn->delivered;
	bbr->loss_steps[step].lost = bbr->lost;
	bbr->loss_step++;
	bbr->lost = conn->lost;
}

/*
 * Return the packets that were marked lost since conn->delivered was "delivered". Steps that are no
 * longer remembered count as if they had been before that.
 */
static u32 bbr3_lost_since(const struct bbr3 *bbr, u32 delivered)
{
	u32 lost = bbr->lost;

	for (u32 back = 1; back <= BBR3_LOSS_STEPS; back++) {
		u32 step = (bbr->loss_step - back) & (BBR3_LOSS_STEPS - 1);

		if (!cc_after(bbr->loss_steps[step].delivered, delivered))
			break;
		lost = bbr->loss_steps[step].lost;
	}
	return bbr->lost - lost;
}

CC_INLINE bool bbr3_is_told(const struct cc_sample *sample)
{
	return sample->tells_losses && bbr3_stack_signals;
}

/* IsInflightTooHigh, section 5.5.10.2: more than 2 % of what was in flight is lost. */
CC_INLINE bool bbr3_is_inflight_too_high(const struct bbr3_ack *ack)
{
	return ack->lost && ack->tx_in_flight &&
	       ack->lost > (u32)((u64)ack->tx_in_flight * bbr3_loss_threshold >> BBR_SCALE);
}

/*
 * InflightAtLoss, section 5.5.10.2: how much was in flight when losses passed the threshold. The
 * first x of the "losses" packets of this ACK are still allowed, where (lost before + x) / (in
 * flight before + x) is the threshold. If they are not among those in flight, nothing is known.
 */
static u32 bbr3_inflight_at_loss(const struct bbr3_ack *ack, u32 losses)
{
	u32 flight, lost;
	u64 budget;

	if (losses > ack->tx_in_flight || losses > ack->lost)
		return BBR3_UNSET;
	flight = ack->tx_in_flight - losses;
	lost = ack->lost - losses;
	budget = ((u64)flight * bbr3_loss_threshold + BBR_UNIT - 1) >> BBR_SCALE;
	if (lost < budget)
		flight += (u32)(((budget - lost) << BBR_SCALE) / (BBR_UNIT - bbr3_loss_threshold));
	return flight;
}

#endif
