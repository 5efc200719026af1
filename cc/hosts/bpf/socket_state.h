/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/*
 * The map of a program's sockets. A program includes it after its struct socket_state.
 *
 * State lies in socket storage: versions 2 and 3 of BBR do not fit into the 104 bytes that a socket
 * has for its control, the kernel's own BBR fills them to the last byte, and nobody outside could
 * read them. struct socket_state begins with struct cc_report, which crates/sockdiag reads over
 * inet_diag: it finds the map by its name. (The kernel takes no get_info operation from BPF.)
 */
#ifndef BROBUST_SOCKET_STATE_H
#define BROBUST_SOCKET_STATE_H

#include "kernel.h"

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct socket_state);
} cc_state SEC(".maps");

static __always_inline struct socket_state *state_of(struct sock *sk)
{
	return bpf_sk_storage_get(&cc_state, sk, NULL, 0);
}

static __always_inline struct socket_state *make_state(struct sock *sk)
{
	return bpf_sk_storage_get(&cc_state, sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);
}

static __always_inline void forget_state(struct sock *sk)
{
	bpf_sk_storage_delete(&cc_state, sk);
}

/* The report is read from the map. */
static __always_inline void note_report(struct sock *sk, const struct cc_report *report)
{
}

#endif
