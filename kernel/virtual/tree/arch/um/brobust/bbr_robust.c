// SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause
/*
 * bbr_robust: the tree's own BBR with the repair of cc/robust.h beside it, which argues it. In a
 * live kernel the same is bpf/bbr_robust.bpf.c.
 */
#include "cc/robust.h"

#include <linux/version.h>
#include <net/tcp.h>

#include "kernel_bbr.h"
#include "net.h"

#define BBR_HIGH_GAIN 739 /* of STARTUP, << 8 */

static void repair(struct sock *sk, const struct rate_sample *rs)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	struct cc_connection conn = {
	    .app_limited = tp->app_limited,
	    .unsent_bytes = tp->write_seq - tp->snd_nxt,
	    .mss = tp->mss_cache,
	    .in_flight = tcp_packets_in_flight(tp),
	    .max_pacing_rate = READ_ONCE(sk->sk_max_pacing_rate),
	};
	const struct cc_sample sample = {.is_app_limited = rs->is_app_limited};
	/* BBR fills the socket's private area: what is counted stands with the flow's records. */
	struct robust robust = {.deficit_acks = brobust_deficits_of(sk)};
	struct brobust_bbr bbr;
	struct bbr_model model;

	brobust_look_at_bbr(sk, &bbr);
	model = (struct bbr_model){
	    .bw = bbr.bw,
	    .min_rtt_us = bbr.min_rtt_us,
	    .pacing_gain = bbr.pacing_gain,
	    .high_gain = BBR_HIGH_GAIN,
	    .mode = bbr.mode,
	};
	if (robust_on_ack(&conn, &sample, &model, &robust))
		WRITE_ONCE(sk->sk_pacing_rate, conn.pacing_rate);
	brobust_note_report(sk, robust.deficit_acks, bbr.mode);
}

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 10, 0)
static void bbr_robust_main(struct sock *sk, u32 ack, int flag, const struct rate_sample *rs)
{
	brobust_kernel_bbr->cong_control(sk, ack, flag, rs);
	repair(sk, rs);
}
#else
static void bbr_robust_main(struct sock *sk, const struct rate_sample *rs)
{
	brobust_kernel_bbr->cong_control(sk, rs);
	repair(sk, rs);
}
#endif

static struct tcp_congestion_ops bbr_robust_ops;

static int __init bbr_robust_register(void)
{
	bbr_robust_ops = *brobust_kernel_bbr;
	strscpy(bbr_robust_ops.name, "bbr_robust", sizeof(bbr_robust_ops.name));
	bbr_robust_ops.cong_control = bbr_robust_main;
	return tcp_register_congestion_control(&bbr_robust_ops);
}
late_initcall(bbr_robust_register);
