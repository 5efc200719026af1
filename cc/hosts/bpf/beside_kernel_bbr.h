/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/*
 * A policy beside the running kernel's own BBR, as BPF struct_ops. Included at the end of a file of
 * cc/beside_kernel_bbr.
 */
#include "kernel_bbr.h"

struct socket_state {
	struct cc_report report; /* first: crates/sockdiag reads it */
	struct cc_connection conn;
	struct POLICY policy;
};

#include "socket_state.h"
#include "../beside_kernel_bbr.h"

/* What the policy has no say in is the kernel's, and has to be called by a program of ours. */
#ifndef POLICY_SCHEDULES

CALLBACK(void, on_set_state, struct sock *sk, u8 new_state)
{
	bbr_set_state(sk, new_state);
}

CWND_EVENT(bbr_event)

CALLBACK(u32, on_ssthresh, struct sock *sk)
{
	return bbr_ssthresh(sk);
}

CALLBACK(u32, on_undo_cwnd, struct sock *sk)
{
	return bbr_undo_cwnd(sk);
}

CALLBACK(u32, on_min_tso_segs, struct sock *sk)
{
	return bbr_min_tso_segs(sk);
}

#endif

CALLBACK(u32, on_sndbuf_expand, struct sock *sk)
{
	return bbr_sndbuf_expand(sk);
}

struct tcp_congestion_ops OPERATIONS = {
    .name = NAME(CC_NAME),
    HOST_OPERATIONS,
    OPERATION(init),
    OPERATION(cong_control),
    OPERATION(sndbuf_expand),
    OPERATION(min_tso_segs),
    OPERATION(set_state),
    CWND_EVENT_OPERATIONS,
    OPERATION(ssthresh),
    OPERATION(undo_cwnd),
};
