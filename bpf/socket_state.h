/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/*
 * The map of a program's sockets. Included after struct socket_state, which begins with struct
 * cc_report: crates/sockdiag finds the map by its name, and reads that.
 */
#ifndef BROBUST_SOCKET_STATE_H
#define BROBUST_SOCKET_STATE_H

#include "tcp.h"

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

#endif
