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

#define NAME_OF(name) #name
#define NAME(name) NAME_OF(name)
#define PASTE_OF(a, b) a##b
#define PASTE(a, b) PASTE_OF(a, b)

static inline u8 ca_state_of(struct sock *sk)
{
	return inet_csk(sk)->icsk_ca_state;
}

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
