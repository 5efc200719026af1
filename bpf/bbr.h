/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/*
 * A look into the kernel's own BBR (net/ipv4/tcp_bbr.c, version 1): its functions, its state, its
 * arithmetic.
 *
 * struct bbr lies in icsk_ca_priv. It is in the BTF of vmlinux if BBR is built in and of tcp_bbr if
 * it is a module; libbpf finds it in either. The fields below have kept their places from Linux 6.1
 * to 6.18, yet the accesses are relocated: that costs nothing, and the loader can say which field a
 * kernel lacks (BBR version 3, say, has no "bw").
 */
#ifndef BROBUST_BBR_H
#define BROBUST_BBR_H

#include "tcp.h"

#define BW_SCALE 24 /* bandwidths are packets per microsecond << 24 */
#define BW_UNIT (1ULL << BW_SCALE)
#define BBR_SCALE 8	  /* gains are << 8 */
#define BBR_HIGH_GAIN 739 /* 2.887, of STARTUP: the least that doubles the rate each RTT */
#define BBR_PACING_MARGIN_PERCENT 1 /* paced that much below the bandwidth: keeps queues short */
#define BBR_NO_MIN_RTT (~0U)

enum bbr_mode {
	BBR_STARTUP,
	BBR_DRAIN,
	BBR_PROBE_BW,
	BBR_PROBE_RTT,
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

/* lib/win_minmax.c: the best three samples of a window; the first is the maximum. */
struct minmax_sample {
	__u32 t;
	__u32 v;
};

struct minmax {
	struct minmax_sample s[3];
};

struct bbr {
	__u32 min_rtt_us;
	struct minmax bw;
	__u32 mode : 3, lt_use_bw : 1;
	__u32 lt_bw;
	__u32 pacing_gain : 10, cwnd_gain : 10;
};

#pragma clang attribute pop

extern void bbr_init(struct sock *sk) __ksym;
extern __u32 bbr_sndbuf_expand(struct sock *sk) __ksym;
extern __u32 bbr_undo_cwnd(struct sock *sk) __ksym;
extern void bbr_cwnd_event(struct sock *sk, enum tcp_ca_event event) __ksym;
extern __u32 bbr_ssthresh(struct sock *sk) __ksym;
extern __u32 bbr_min_tso_segs(struct sock *sk) __ksym;
extern void bbr_set_state(struct sock *sk, __u8 new_state) __ksym;
/* libbpf ignores ___ and what follows, and binds the one whose parameters the kernel's has. */
extern void bbr_main___rs(struct sock *sk, const struct rate_sample *rs) __weak __ksym;
extern void bbr_main___ack(struct sock *sk, __u32 ack, int flag,
			   const struct rate_sample *rs) __weak __ksym;

static __always_inline const struct bbr *bbr_of(struct sock *sk)
{
	return inet_csk_ca(sk);
}

/* The bandwidth BBR works with: that of a policer if it sees one, else the most of ten rounds. */
static __always_inline __u32 bbr_bw(const struct bbr *bbr)
{
	return BPF_CORE_READ_BITFIELD(bbr, lt_use_bw) ? bbr->lt_bw : bbr->bw.s[0].v;
}

/* Bandwidth times minimum RTT in packets, rounded up, as bbr_bdp() at gain 1; 0 without an RTT. */
static __always_inline __u64 bbr_bdp(const struct bbr *bbr)
{
	if (bbr->min_rtt_us == BBR_NO_MIN_RTT)
		return 0;
	return ((__u64)bbr_bw(bbr) * bbr->min_rtt_us + BW_UNIT - 1) >> BW_SCALE;
}

/* Bytes of payload per second, as bbr_get_info() reports the bandwidth. */
static __always_inline __u64 bbr_bw_to_bytes(struct sock *sk, __u32 bw)
{
	return (__u64)bw * tcp_sk(sk)->mss_cache * USEC_PER_SEC >> BW_SCALE;
}

/*
 * Bytes per second for a bandwidth and a gain, in the kernel's order of operations, so that both
 * round alike. 64 bits are enough up to 3 Tbit/s at the high gain.
 */
static __always_inline __u64 bbr_bw_to_pacing_rate(struct sock *sk, __u32 bw, __u32 gain)
{
	__u64 rate = bw;

	rate *= tcp_sk(sk)->mss_cache;
	rate *= gain;
	rate >>= BBR_SCALE;
	rate *= USEC_PER_SEC / 100 * (100 - BBR_PACING_MARGIN_PERCENT);
	rate >>= BW_SCALE;
	return rate < sk->sk_max_pacing_rate ? rate : sk->sk_max_pacing_rate;
}

#endif
