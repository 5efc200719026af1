/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* What the callbacks need of the kernel, for BPF; cc/hosts/module/kernel.h has the same for
 * modules. */
#ifndef BROBUST_KERNEL_H
#define BROBUST_KERNEL_H

#include "../../cc.h"
#include "cong_control.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Linux 6.1 does not let BPF write tcp_sock.app_limited. The loader finds out whether it may. */
const volatile bool may_write_app_limited = true;

/* Since Linux 7.1 one event, the start of sending, has a callback of its own. Set by the loader. */
const volatile bool tx_start_is_separate = true;

/* The loader sets it before the program is verified. */
const volatile u32 tick_hz = 250;

#define HZ tick_hz
#define GSO_LIMIT GSO_LEGACY_MAX_SIZE
#define tcp_jiffies32 ((u32)bpf_jiffies64())

#define CALLBACK(type, name, ...) SEC("struct_ops") type BPF_PROG(name, ##__VA_ARGS__)

#define CONG_CONTROL(process_ack)                                                                  \
	SEC("struct_ops") void on_cong_control(__u64 *ctx)                                         \
	{                                                                                          \
		struct cong_control_args args = cong_control_args(ctx);                            \
                                                                                                   \
		process_ack(&args);                                                                \
	}

/* A kernel without the second callback gets only the first: the loader leaves out what it lacks. */
#define CWND_EVENT(process_event)                                                                  \
	CALLBACK(void, on_cwnd_event, struct sock *sk, enum tcp_ca_event event)                    \
	{                                                                                          \
		process_event(sk, event);                                                          \
	}                                                                                          \
                                                                                                   \
	CALLBACK(void, on_cwnd_event_tx_start, struct sock *sk)                                    \
	{                                                                                          \
		process_event(sk, CA_EVENT_TX_START);                                              \
	}
#define CWND_EVENT_OPERATIONS OPERATION(cwnd_event), OPERATION(cwnd_event_tx_start)

#define OPERATIONS CC_NAME SEC(".struct_ops")
#define OPERATION(field) .field = (void *)on_##field
#define HOST_OPERATIONS .flags = TCP_CONG_NON_RESTRICTED

#define NAME_OF(name) #name
#define NAME(name) NAME_OF(name)

static __always_inline u8 ca_state_of(struct sock *sk)
{
	const struct inet_connection_sock *icsk = inet_csk(sk);

	return BPF_CORE_READ_BITFIELD(icsk, icsk_ca_state);
}

static __always_inline bool cwnd_was_full(const struct tcp_sock *tp)
{
	return BPF_CORE_READ_BITFIELD(tp, is_cwnd_limited);
}

/* Where google's stack runs, modules use what it tells; BPF does not yet. */
static __always_inline void load_losses(const struct rate_sample *rs CC_UNUSED,
					struct cc_sample *sample CC_UNUSED)
{
}

static __always_inline u32 event_of(struct sock *sk CC_UNUSED, enum tcp_ca_event event)
{
	return event;
}

static __always_inline void ask_for_pacing(struct sock *sk, const struct cc_connection *conn)
{
	if (conn->wants_pacing && sk->sk_pacing_status == SK_PACING_NONE)
		sk->sk_pacing_status = SK_PACING_NEEDED;
}

#endif
