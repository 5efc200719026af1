/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/*
 * A call of a control as a recording keeps it: all that the control was given, and all that it
 * decided. So whoever has the recording can make the calls again, on another host (crates/cc).
 *
 * Each call is two of these: what it is, and its return.
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
	CC_CALL_RETURN, /* value: what it answered, 0 if nothing */
};

/* Read by crates/cc/src/replay.rs. */
struct cc_call {
	u64 socket; /* which: a number that no other socket has while it lives */
	u32 number; /* of the socket's records, from 0: a gap tells that some were lost */
	u32 kind;   /* enum cc_call_kind */
	u64 value;
	struct cc_connection conn; /* before the call, and as it left it */
	struct cc_sample sample;
	struct cc_report report;
};

#endif
