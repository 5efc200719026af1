/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/*
 * A policy beside the tree's own BBR, built into the kernel of virtual time. Included at the end of
 * a file of cc/beside_kernel_bbr. (In other kernels the functions of BBR are private: BPF reaches
 * them, a module does not.)
 */
#include <linux/slab.h>

#include "kernel.h"

struct socket_state {
	struct cc_report report;
	struct cc_connection conn;
	struct POLICY policy;
};

/* BBR fills the socket's private area, and nothing in this kernel uses the pointer for its owner. */
static inline struct socket_state *state_of(struct sock *sk)
{
	return (__force struct socket_state *)sk->sk_user_data;
}

static inline void set_state(struct sock *sk, struct socket_state *state)
{
	sk->sk_user_data = (__force void __rcu *)state;
}

static struct socket_state *make_state(struct sock *sk)
{
	set_state(sk, kzalloc(sizeof(struct socket_state), GFP_ATOMIC | __GFP_NOWARN));
	return state_of(sk);
}

static void forget_state(struct sock *sk)
{
	kfree(state_of(sk));
	set_state(sk, NULL);
}

static void on_release(struct sock *sk)
{
	forget_state(sk);
	if (brobust_kernel_bbr->release)
		brobust_kernel_bbr->release(sk);
}

static inline void note_report(struct sock *sk, const struct cc_report *report)
{
	brobust_note_report(sk, report->deficit_acks, report->mode);
}

static inline void look_at_bbr(struct sock *sk, struct bbr_view *view)
{
	brobust_look_at_bbr(sk, view);
}

static inline void bbr_main(const struct cong_control_args *args)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 10, 0)
	brobust_kernel_bbr->cong_control(args->sk, args->ack, args->flag, args->rs);
#else
	brobust_kernel_bbr->cong_control(args->sk, args->rs);
#endif
}

static inline void bbr_init(struct sock *sk)
{
	brobust_kernel_bbr->init(sk);
}

static inline void bbr_set_state(struct sock *sk, u8 new_state)
{
	brobust_kernel_bbr->set_state(sk, new_state);
}

static inline void bbr_event(struct sock *sk, enum tcp_ca_event event)
{
#ifdef TX_START_IS_SEPARATE
	if (event == CA_EVENT_TX_START) {
		if (brobust_kernel_bbr->cwnd_event_tx_start)
			brobust_kernel_bbr->cwnd_event_tx_start(sk);
		return;
	}
#endif
	if (brobust_kernel_bbr->cwnd_event)
		brobust_kernel_bbr->cwnd_event(sk, event);
}

static inline u32 bbr_ssthresh(struct sock *sk)
{
	return brobust_kernel_bbr->ssthresh(sk);
}

static inline u32 bbr_undo_cwnd(struct sock *sk)
{
	return brobust_kernel_bbr->undo_cwnd(sk);
}

#ifdef CONTROLS_SIZE_BURSTS
static inline u32 bbr_tso_segs(struct sock *sk, unsigned int mss)
{
	return brobust_kernel_bbr->tso_segs(sk, mss);
}
#else
static inline u32 bbr_min_tso_segs(struct sock *sk)
{
	return brobust_kernel_bbr->min_tso_segs(sk);
}
#endif

#include "../beside_kernel_bbr.h"

static struct tcp_congestion_ops operations;

/* What the policy has no say in is the tree's, whatever that tree's BBR has. */
static int __init register_beside_kernel_bbr(void)
{
	operations = *brobust_kernel_bbr;
	strscpy(operations.name, NAME(CC_NAME), sizeof(operations.name));
	operations.init = on_init;
	operations.release = on_release;
	operations.cong_control = on_cong_control;
#ifdef POLICY_SCHEDULES
	operations.set_state = on_set_state;
	operations.cwnd_event = on_cwnd_event;
#ifdef TX_START_IS_SEPARATE
	operations.cwnd_event_tx_start = on_cwnd_event_tx_start;
#endif
	operations.ssthresh = on_ssthresh;
	operations.undo_cwnd = on_undo_cwnd;
#ifdef CONTROLS_SIZE_BURSTS
	operations.tso_segs = on_tso_segs;
#else
	operations.min_tso_segs = on_min_tso_segs;
#endif
#endif
	return tcp_register_congestion_control(&operations);
}
late_initcall(register_beside_kernel_bbr);
