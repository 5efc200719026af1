// SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause
/*
 * bbr_steady: the tree's own BBR with the repair of cc/steady.h beside it, which argues it. In a
 * live kernel the same is bpf/bbr_steady.bpf.c.
 */
#include "cc/steady.h"

#include <linux/version.h>
#include <net/tcp.h>

#include "connection.h"
#include "kernel_bbr.h"
#include "net.h"

/* BBR fills the socket's private area. */
static struct steady states[BROBUST_FLOWS + 1];

static struct steady *state_of(const struct sock *sk)
{
	return &states[brobust_flow_of(sk)];
}

static void before_bbr(struct sock *sk)
{
	struct cc_connection conn;

	load_connection(sk, &conn);
	steady_before(&conn, state_of(sk));
	store_connection(sk, &conn);
}

static void after_bbr(struct sock *sk)
{
	struct cc_connection conn;

	load_connection(sk, &conn);
	steady_after(&conn, state_of(sk));
	store_connection(sk, &conn);
}

static void before_ack(struct sock *sk, const struct rate_sample *rs)
{
	const struct cc_sample sample = sample_of(rs);
	struct cc_connection conn;

	load_connection(sk, &conn);
	steady_before_ack(&conn, &sample, state_of(sk));
	store_connection(sk, &conn);
}

static void after_ack(struct sock *sk, const struct rate_sample *rs)
{
	const struct cc_sample sample = sample_of(rs);
	struct steady *st = state_of(sk);
	struct cc_connection conn;
	struct brobust_bbr bbr;
	struct bbr_model model;

	brobust_look_at_bbr(sk, &bbr);
	model = (struct bbr_model){.bw = bbr.bw, .mode = bbr.mode};
	load_connection(sk, &conn);
	steady_on_ack(&conn, &sample, &model, st);
	store_connection(sk, &conn);
	brobust_note_report(sk, st->stalls, bbr.mode);
}

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 10, 0)
static void bbr_steady_main(struct sock *sk, u32 ack, int flag, const struct rate_sample *rs)
{
	before_ack(sk, rs);
	brobust_kernel_bbr->cong_control(sk, ack, flag, rs);
	after_ack(sk, rs);
}
#else
static void bbr_steady_main(struct sock *sk, const struct rate_sample *rs)
{
	before_ack(sk, rs);
	brobust_kernel_bbr->cong_control(sk, rs);
	after_ack(sk, rs);
}
#endif

static void bbr_steady_init(struct sock *sk)
{
	struct cc_connection conn;

	brobust_kernel_bbr->init(sk);
	load_connection(sk, &conn);
	memset(state_of(sk), 0, sizeof(struct steady));
	steady_init(&conn, state_of(sk));
}

static void bbr_steady_set_state(struct sock *sk, u8 state)
{
	before_bbr(sk);
	brobust_kernel_bbr->set_state(sk, state);
	after_bbr(sk);
}

static void bbr_steady_cwnd_event(struct sock *sk, enum tcp_ca_event event)
{
	before_bbr(sk);
	brobust_kernel_bbr->cwnd_event(sk, event);
	after_bbr(sk);
}

static u32 bbr_steady_ssthresh(struct sock *sk)
{
	u32 ssthresh;

	before_bbr(sk);
	ssthresh = brobust_kernel_bbr->ssthresh(sk);
	after_bbr(sk);
	return ssthresh;
}

static u32 bbr_steady_undo_cwnd(struct sock *sk)
{
	before_bbr(sk);
	return brobust_kernel_bbr->undo_cwnd(sk);
}

static u32 bbr_steady_min_tso_segs(struct sock *sk)
{
	struct cc_connection conn;

	load_connection(sk, &conn);
	steady_on_send(&conn, state_of(sk));
	store_connection(sk, &conn);
	return brobust_kernel_bbr->min_tso_segs(sk);
}

static struct tcp_congestion_ops bbr_steady_ops;

static int __init bbr_steady_register(void)
{
	bbr_steady_ops = *brobust_kernel_bbr;
	strscpy(bbr_steady_ops.name, "bbr_steady", sizeof(bbr_steady_ops.name));
	bbr_steady_ops.init = bbr_steady_init;
	bbr_steady_ops.cong_control = bbr_steady_main;
	bbr_steady_ops.set_state = bbr_steady_set_state;
	bbr_steady_ops.cwnd_event = bbr_steady_cwnd_event;
	bbr_steady_ops.ssthresh = bbr_steady_ssthresh;
	bbr_steady_ops.undo_cwnd = bbr_steady_undo_cwnd;
	bbr_steady_ops.min_tso_segs = bbr_steady_min_tso_segs;
	return tcp_register_congestion_control(&bbr_steady_ops);
}
late_initcall(bbr_steady_register);
