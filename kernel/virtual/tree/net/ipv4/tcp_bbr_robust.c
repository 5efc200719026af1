// SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause
/*
 * bbr_robust for kernels that we build ourselves: the rule of bpf/bbr_robust.bpf.c, which argues
 * it, beside the BBR of the kernel's own tcp_bbr.c. Included at that file's end, for its functions
 * are private.
 */
#include <linux/version.h>

/* 2/ln(2), STARTUP's gain, in BBR_UNIT */
#define BBR_ROBUST_GAIN (BBR_UNIT * 2885 / 1000 + 1)

void __weak brobust_note_deficit(struct sock *sk);
void __weak brobust_note_deficit(struct sock *sk)
{
}

static bool bbr_robust_has_deficit(struct sock *sk, const struct rate_sample *rs)
{
	const struct bbr *bbr = inet_csk_ca(sk);
	const struct tcp_sock *tp = tcp_sk(sk);

	if (bbr->mode != BBR_PROBE_BW)
		return false;
	/* The application is the limit: now, an RTT ago, or with the last segment. */
	if (tp->app_limited || rs->is_app_limited || tp->write_seq - tp->snd_nxt < tp->mss_cache)
		return false;
	return tcp_packets_in_flight(tp) < bbr_bdp(sk, bbr_bw(sk), BBR_UNIT);
}

static void bbr_robust_repair(struct sock *sk, const struct rate_sample *rs)
{
	if (!bbr_robust_has_deficit(sk, rs))
		return;
	sk->sk_pacing_rate = bbr_bw_to_pacing_rate(sk, bbr_bw(sk), BBR_ROBUST_GAIN);
	brobust_note_deficit(sk);
}

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 10, 0)
static void bbr_robust_main(struct sock *sk, u32 ack, int flag, const struct rate_sample *rs)
{
	tcp_bbr_cong_ops.cong_control(sk, ack, flag, rs);
	bbr_robust_repair(sk, rs);
}
#else
static void bbr_robust_main(struct sock *sk, const struct rate_sample *rs)
{
	tcp_bbr_cong_ops.cong_control(sk, rs);
	bbr_robust_repair(sk, rs);
}
#endif

static struct tcp_congestion_ops bbr_robust_ops;

static int __init bbr_robust_register(void)
{
	bbr_robust_ops = tcp_bbr_cong_ops;
	strscpy(bbr_robust_ops.name, "bbr_robust", sizeof(bbr_robust_ops.name));
	bbr_robust_ops.cong_control = bbr_robust_main;
	return tcp_register_congestion_control(&bbr_robust_ops);
}
late_initcall(bbr_robust_register);
