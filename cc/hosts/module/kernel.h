/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* What the callbacks need of the kernel, for modules; cc/hosts/bpf/kernel.h has the same for
 * BPF. */
#ifndef BROBUST_KERNEL_H
#define BROBUST_KERNEL_H

#include <linux/version.h>
#include <net/tcp.h>

#include "../../cc.h"
#include "virtual_kernel.h"

#define may_write_app_limited true

/*
 * google's stack (the kernels of BBR version 2 and 3) tells controls more than mainline's, and
 * leaves the size of bursts to them. It is known by macros that its headers define.
 */
#ifdef TCPCB_IN_FLIGHT_MAX
#define STACK_TELLS_LOSSES
#define CONTROLS_SIZE_BURSTS
#endif
#ifdef TCP_ECN_LOW /* version 3's */
#define STACK_TELLS_OF_PROBES
#endif
#if defined(STACK_TELLS_LOSSES) && !defined(STACK_TELLS_OF_PROBES)
#define GSO_LIMIT GSO_MAX_SIZE
#else
#define GSO_LIMIT GSO_LEGACY_MAX_SIZE
#endif

#define CALLBACK(type, name, ...) static type name(__VA_ARGS__)

struct cong_control_args {
	struct sock *sk;
	u32 ack;
	int flag;
	const struct rate_sample *rs;
};

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 10, 0)
#define CONG_CONTROL(process_ack)                                                                  \
	static void on_cong_control(struct sock *sk, u32 ack, int flag,                            \
				    const struct rate_sample *rs)                                  \
	{                                                                                          \
		const struct cong_control_args args = {sk, ack, flag, rs};                         \
                                                                                                   \
		process_ack(&args);                                                                \
	}
#else
#define CONG_CONTROL(process_ack)                                                                  \
	static void on_cong_control(struct sock *sk, const struct rate_sample *rs)                 \
	{                                                                                          \
		const struct cong_control_args args = {.sk = sk, .rs = rs};                        \
                                                                                                   \
		process_ack(&args);                                                                \
	}
#endif

/* Since Linux 7.1 one event, the start of sending, has a callback of its own. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(7, 1, 0)
#define TX_START_IS_SEPARATE
#define TX_START_EVENT(process_event)                                                              \
	static void on_cwnd_event_tx_start(struct sock *sk)                                        \
	{                                                                                          \
		process_event(sk, CA_EVENT_TX_START);                                              \
	}
#define CWND_EVENT_OPERATIONS OPERATION(cwnd_event), OPERATION(cwnd_event_tx_start)
#else
#define TX_START_EVENT(process_event)
#define CWND_EVENT_OPERATIONS OPERATION(cwnd_event)
#endif
#define CWND_EVENT(process_event)                                                                  \
	static void on_cwnd_event(struct sock *sk, enum tcp_ca_event event)                        \
	{                                                                                          \
		process_event(sk, event);                                                          \
	}                                                                                          \
	TX_START_EVENT(process_event)

#define NAME_OF(name) #name
#define NAME(name) NAME_OF(name)
#define PASTE_OF(a, b) a##b
#define PASTE(a, b) PASTE_OF(a, b)

static inline u8 ca_state_of(struct sock *sk)
{
	return inet_csk(sk)->icsk_ca_state;
}

static inline bool cwnd_was_full(const struct tcp_sock *tp)
{
	return tp->is_cwnd_limited;
}

static inline void load_losses(const struct rate_sample *rs, struct cc_sample *sample)
{
#ifdef STACK_TELLS_LOSSES
	sample->tells_losses = true;
	sample->lost = rs->lost;
	sample->tx_in_flight = rs->tx_in_flight;
#endif
#ifdef STACK_TELLS_OF_PROBES
	sample->is_acking_probe = rs->is_acking_tlp_retrans_seq;
#endif
}

#ifdef STACK_TELLS_LOSSES
/* A packet that was just marked lost, as control_on_lost() gets it. */
static inline void load_lost_packet(struct sock *sk, const struct sk_buff *skb,
				    struct cc_sample *packet)
{
	const struct tcp_skb_cb *scb = TCP_SKB_CB(skb);

	memset(packet, 0, sizeof(*packet));
	packet->losses = tcp_skb_pcount(skb);
	if (!scb->tx.delivered_mstamp)
		return; /* it was delivered once: it has no priors any more */
	packet->tells_losses = true;
	packet->lost = tcp_sk(sk)->lost - scb->tx.lost;
	packet->tx_in_flight = scb->tx.in_flight;
	packet->is_app_limited = scb->tx.is_app_limited;
}
#endif

/* Return an event of the stack as enum cc_event. */
static inline u32 event_of(struct sock *sk, enum tcp_ca_event event)
{
#ifdef STACK_TELLS_OF_PROBES
	if (event == CA_EVENT_TLP_RECOVERY && tcp_sk(sk)->tlp_orig_data_app_limited)
		return CC_EVENT_TLP_RECOVERY_APP_LIMITED;
#endif
	return event;
}

#ifdef CONTROLS_SIZE_BURSTS
/* What google's stack sends at once for a control that does not size its bursts: as mainline's,
 * with the control's minimum. */
static inline u32 burst_of_stack(struct sock *sk, unsigned int mss, u32 least)
{
	u64 bytes = READ_ONCE(sk->sk_pacing_rate) >> READ_ONCE(sk->sk_pacing_shift);
	u32 halvings =
	    tcp_min_rtt(tcp_sk(sk)) >> READ_ONCE(sock_net(sk)->ipv4.sysctl_tcp_tso_rtt_log);

	if (halvings < 32)
		bytes += sk->sk_gso_max_size >> halvings;
	return cc_max((u32)cc_min64(bytes, sk->sk_gso_max_size) / mss, least);
}
#endif

/* Only the kernel of virtual time has a stride. */
static inline void ask_for_pacing(struct sock *sk, const struct cc_connection *conn)
{
#ifdef BROBUST_PACING_STRIDE
	if (conn->pacing_stride)
		inet_csk(sk)->icsk_pacing_stride = conn->pacing_stride;
#endif
	if (conn->wants_pacing)
		cmpxchg(&sk->sk_pacing_status, SK_PACING_NONE, SK_PACING_NEEDED);
}

#endif
