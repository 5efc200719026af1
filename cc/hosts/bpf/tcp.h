/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/*
 * The parts of the kernel's TCP types that our programs touch, and its small helpers, by the names
 * that they have in include/net/tcp.h.
 *
 * Only the names and types of the fields count: preserve_access_index makes clang record each
 * access, and libbpf replaces the offsets with those of the running kernel. So no vmlinux.h of 3 MB
 * is needed, and neither order nor padding matters.
 */
#ifndef BROBUST_TCP_H
#define BROBUST_TCP_H

#include <stdbool.h>
#include <linux/types.h>
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#define TCP_CONG_NON_RESTRICTED 1 /* every user, and every network namespace, may choose it */

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct sock {
	unsigned long sk_pacing_rate;	  /* bytes per second */
	unsigned long sk_max_pacing_rate; /* bytes per second; ~0 without SO_MAX_PACING_RATE */
	__u32 sk_pacing_status;		  /* enum sk_pacing */
	__u8 sk_pacing_shift;
	unsigned int sk_gso_max_size; /* bytes */
};

enum sk_pacing { SK_PACING_NONE, SK_PACING_NEEDED, SK_PACING_FQ };

struct inet_connection_sock {
	__u8 icsk_ca_state : 5;
	__u64 icsk_ca_priv[13]; /* the state of the congestion control */
};

/* lib/win_minmax.c: the best three samples of a window; the first is the best. */
struct minmax_sample {
	__u32 t;
	__u32 v;
};

struct minmax {
	struct minmax_sample s[3];
};

struct tcp_sock {
	__u32 write_seq; /* sequence number after the last byte that the application has written */
	__u32 snd_una;	 /* ... of the first byte that is not acknowledged */
	__u32 snd_nxt;	 /* ... and after the last byte that was sent */
	__u32 snd_wnd;	 /* bytes from snd_una that the receiver admits */
	__u32 mss_cache; /* bytes */
	__u32 packets_out; /* packets, as all below */
	__u32 sacked_out;
	__u32 lost_out;
	__u32 retrans_out;
	__u32 max_packets_out;
	__u32 delivered;
	__u32 lost;
	__u32 app_limited; /* 0, or the value of "delivered" that ends the application's limit */
	__u32 snd_cwnd;
	__u32 snd_cwnd_cnt;
	__u32 snd_cwnd_clamp;
	__u32 snd_ssthresh;
	__u32 prior_cwnd;
	__u32 is_cwnd_limited : 1;
	__u32 srtt_us;		/* << 3 */
	__u32 lsndtime;		/* jiffies */
	__u64 tcp_mstamp;	/* us */
	__u64 delivered_mstamp; /* us */
	__u64 tcp_clock_cache;	/* ns */
	__u64 tcp_wstamp_ns;
	struct minmax rtt_min; /* us */
};

/* net/ipv4/tcp_rate.c explains the fields; cc/cc.h has them as struct cc_sample. */
struct rate_sample {
	__u32 prior_delivered;
	__s32 delivered;
	long interval_us;
	long rtt_us;
	int losses;
	__u32 acked_sacked;
	__u32 prior_in_flight;
	bool is_app_limited; /* the sample's packet was sent while the application was the limit */
	bool is_retrans;
	bool is_ack_delayed;
};

struct ack_sample {
	__s32 rtt_us;
};

enum tcp_ca_event { CA_EVENT_TX_START };

/* Only the operations that we fill: libbpf matches them with the kernel's by name. */
struct tcp_congestion_ops {
	__u32 (*ssthresh)(struct sock *sk);
	void (*set_state)(struct sock *sk, __u8 new_state);
	void (*cwnd_event)(struct sock *sk, enum tcp_ca_event event);
	void (*cwnd_event_tx_start)(struct sock *sk); /* since Linux 7.1 */
	__u32 (*min_tso_segs)(struct sock *sk);
	void (*cong_avoid)(struct sock *sk, __u32 ack, __u32 acked);
	void (*pkts_acked)(struct sock *sk, const struct ack_sample *sample);
	void (*cong_control)(struct sock *sk); /* and more; see cong_control.h */
	__u32 (*undo_cwnd)(struct sock *sk);
	__u32 (*sndbuf_expand)(struct sock *sk);
	void (*init)(struct sock *sk);
	__u32 flags;
	char name[16];
};

#pragma clang attribute pop

/* The verifier allows no other accesses to a socket than plain loads and stores. */
#define READ_ONCE(field) (field)
#define WRITE_ONCE(field, value) ((field) = (value))

#define GSO_LEGACY_MAX_SIZE 65536U
#define MAX_TCP_HEADER 320U /* of a kernel with tunnels and wireless devices */

static __always_inline struct tcp_sock *tcp_sk(struct sock *sk)
{
	/* The verifier knows that the struct sock it hands to struct_ops is a struct tcp_sock. */
	return (struct tcp_sock *)sk;
}

static __always_inline struct inet_connection_sock *inet_csk(struct sock *sk)
{
	return (struct inet_connection_sock *)sk;
}

static __always_inline void *inet_csk_ca(struct sock *sk)
{
	return inet_csk(sk)->icsk_ca_priv;
}

static __always_inline __u32 tcp_packets_in_flight(const struct tcp_sock *tp)
{
	return tp->packets_out - (tp->sacked_out + tp->lost_out) + tp->retrans_out;
}

/* The sequence number after the last byte that the receiver's window admits. */
static __always_inline __u32 tcp_wnd_end(const struct tcp_sock *tp)
{
	return tp->snd_una + tp->snd_wnd;
}

static __always_inline __u32 tcp_min_rtt(const struct tcp_sock *tp)
{
	return tp->rtt_min.s[0].v;
}

static __always_inline __u32 tcp_snd_cwnd(const struct tcp_sock *tp)
{
	return tp->snd_cwnd;
}

static __always_inline void tcp_snd_cwnd_set(struct tcp_sock *tp, __u32 cwnd)
{
	tp->snd_cwnd = cwnd;
}

static __always_inline bool tcp_is_cwnd_limited(struct sock *sk)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	__u32 cwnd = tp->snd_cwnd;

	return BPF_CORE_READ_BITFIELD(tp, is_cwnd_limited) ||
	       (cwnd < tp->snd_ssthresh && cwnd < 2 * tp->max_packets_out);
}

#endif
