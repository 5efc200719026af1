/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/*
 * A call of a control as a recording keeps it: everything that the control was given, and
 * everything that it decided. So the calls can be repeated on another host
 * (crates/cc/src/replay.rs).
 *
 * Each call makes two of these records: one when it begins, and one when it returns.
 */
#ifndef BROBUST_CC_CALL_H
#define BROBUST_CC_CALL_H

#include "cc.h"

enum cc_call_kind {
	CC_CALL_INIT,
	CC_CALL_ON_ACK,	   /* with its sample */
	CC_CALL_ON_ACKED,  /* value: packets */
	CC_CALL_ON_RTT,	   /* value: µs */
	CC_CALL_SET_STATE, /* value: enum cc_ca_state */
	CC_CALL_ON_EVENT,  /* value: enum cc_event */
	CC_CALL_SSTHRESH,
	CC_CALL_UNDO_CWND,
	CC_CALL_ON_SEND,
	CC_CALL_ON_LOST, /* with its packet as a sample */
	CC_CALL_RETURN,	 /* value: what the control answered, or 0 */
};

/* Read by crates/cc/src/replay.rs. */
struct cc_call {
	u64 socket; /* a number that no other socket has while this one lives */
	u32 number; /* counts the socket's records from 0; a gap means that some were lost */
	u32 kind;   /* enum cc_call_kind */
	u64 value;
	struct cc_connection conn; /* before the call; in a return, as the call left it */
	struct cc_sample sample;
	struct cc_report report;
};

/* Fill in all but the socket and the record's number. */
CC_INLINE void cc_fill_call(struct cc_call *call, u32 kind, u64 value,
			    const struct cc_connection *conn, const struct cc_sample *sample,
			    const struct cc_report *report)
{
	call->kind = kind;
	call->value = value;
	call->conn = *conn;
	if (sample)
		call->sample = *sample;
	else
		__builtin_memset(&call->sample, 0, sizeof(call->sample));
	call->report = *report;
}

#endif
