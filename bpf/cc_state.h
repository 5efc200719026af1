/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/*
 * What a control tells of itself.
 *
 * The kernel refuses a get_info operation from BPF, so `ss -i` cannot show the model of such a
 * control. It is exported in socket storage instead, which inet_diag reports to whoever asks for
 * the map (crates/sockdiag). BBR fills the socket's private area to the last byte, and nobody
 * outside could read it there.
 */
#ifndef BROBUST_CC_STATE_H
#define BROBUST_CC_STATE_H

#include "tcp.h"

/*
 * Begins as struct tcp_bbr_info (include/uapi/linux/inet_diag.h), and may only grow at its end.
 * Read by crates/sockdiag/src/bbr_info.rs.
 */
struct cc_state {
	__u64 bandwidth;    /* bytes of payload per second */
	__u32 min_rtt_us;   /* ~0: no sample yet */
	__u32 pacing_gain;  /* << 8, as applied */
	__u32 cwnd_gain;    /* << 8 */
	__u32 mode;	    /* enum bbr_mode */
	__u64 acks;	    /* ACKs processed */
	__u64 deficit_acks; /* ... and found with too little in flight */
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct cc_state);
} cc_state SEC(".maps");

/* NULL if there is no memory: the control works without. */
static __always_inline struct cc_state *cc_state_of(struct sock *sk)
{
	return bpf_sk_storage_get(&cc_state, sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);
}

#endif
