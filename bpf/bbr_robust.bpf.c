// SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause
/*
 * bbr_robust: the kernel's own BBR with the minimal repair of "2BRobust" (Elmenhorst, Aschenbruck,
 * 2026), section 6.2.
 *
 * The trouble. While the CPU of a sender is taken away, its pacing schedule stands still. Linux
 * repays a late packet with at most half of one gap between packets (tcp_update_skb_after_send),
 * so what was not sent meanwhile is never made up for. The delivery rate falls below the pacing
 * rate, BBR takes it for the bandwidth of the path, paces at that, and so on down to a few Mbit/s.
 * Less than one BDP in flight, by BBR's own estimate, is how the sender can tell (section 6.1).
 *
 * The rule. After BBR has done its work on an ACK: if less than one BDP is in flight, pace at
 * STARTUP's gain of 2.887 until the next ACK. Nothing else changes: not cwnd, and not pacing_gain
 * in BBR's state. The paper's patch does overwrite pacing_gain; but BBR leaves a phase of gain > 1
 * only with "gain" BDPs in flight (or a loss), so its gain cycle would stop during a deficit.
 *
 * When. Right after an ACK the least is in flight: the acked packets are gone, and those that they
 * admit are not sent yet. The paper's patch looks there too (bbr_update_gains). The rate stands
 * until the next ACK, even if sending ends the deficit before. Ending it at once, in the write
 * loop, is possible and wrong: a CPU that comes back for 10 ms of 20 has to send more than one BDP
 * in its 10 ms (of 20 Mbit/s at 10 ms RTT it gets 16; if ended at once 7.6; without repair 3.5).
 * With the CPU at hand, the next ACK comes soon. BBR sets its own rate on every ACK outside
 * STARTUP, so there is nothing to undo.
 *
 * Not while BBR is in another mode than PROBE_BW. STARTUP paces at that gain anyway and never
 * lowers its rate, so an override would stick; DRAIN and PROBE_RTT want little in flight.
 *
 * Not while the application is the limit: little is in flight then for lack of data. It takes
 * three signs, since each alone misses some. Share of ACKs with a false deficit (20 Mbit/s, 10 ms
 * RTT) for applications that write	   20 kB/40 ms	8 kB/8 ms  60 kB/100 ms
 *	no guard				68 %	   80 %		34 %
 *	tp->app_limited: limited now		67 %	    0 %		32 %
 *	rs->is_app_limited: an RTT ago		 1 %	    0 %		31 %
 *	both					 1 %	    0 %		30 %
 *	both, and unsent data: at its end	 0 %	    0 %		 0 %
 *
 * In all phases of PROBE_BW, as in the paper. The phase of gain 0.75 lowers the amount in flight on
 * purpose, but BBR ends it at one BDP; leaving it out changed nothing that we could measure, with
 * contention or without. A flow that has its CPU keeps somewhat more than one BDP in flight: at 20
 * and 40 Mbit/s less than 1 % of its ACKs find a deficit.
 */
#include "bbr.h"
#include "cc_state.h"
#include "cong_control.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

static __always_inline bool has_inflight_deficit(struct sock *sk, const struct rate_sample *rs)
{
	const struct bbr *bbr = bbr_of(sk);
	const struct tcp_sock *tp = tcp_sk(sk);

	if (BPF_CORE_READ_BITFIELD(bbr, mode) != BBR_PROBE_BW)
		return false;
	if (tp->app_limited || rs->is_app_limited || !tcp_has_unsent_segment(tp))
		return false;
	return tcp_packets_in_flight(tp) < bbr_bdp(bbr);
}

static __always_inline void tell(struct sock *sk, bool deficit)
{
	struct cc_state *state = cc_state_of(sk);
	const struct bbr *bbr = bbr_of(sk);

	if (!state)
		return;
	state->bandwidth = bbr_bw_to_bytes(sk, bbr_bw(bbr));
	state->min_rtt_us = bbr->min_rtt_us;
	state->pacing_gain = deficit ? BBR_HIGH_GAIN : BPF_CORE_READ_BITFIELD(bbr, pacing_gain);
	state->cwnd_gain = BPF_CORE_READ_BITFIELD(bbr, cwnd_gain);
	state->mode = BPF_CORE_READ_BITFIELD(bbr, mode);
	state->acks++;
	state->deficit_acks += deficit;
}

SEC("struct_ops")
void bbr_robust_main(__u64 *ctx)
{
	struct cong_control_args args = cong_control_args(ctx);
	struct sock *sk = args.sk;
	const struct bbr *bbr = bbr_of(sk);
	bool deficit;

	if (cong_control_has_ack)
		bbr_main___ack(sk, args.ack, args.flag, args.rs);
	else
		bbr_main___rs(sk, args.rs);

	deficit = has_inflight_deficit(sk, args.rs);
	if (deficit)
		sk->sk_pacing_rate = bbr_bw_to_pacing_rate(sk, bbr_bw(bbr), BBR_HIGH_GAIN);
	tell(sk, deficit);
}

SEC("struct_ops")
void BPF_PROG(bbr_robust_init, struct sock *sk)
{
	bbr_init(sk);
}

/* BBR sets the rate here too, but only when the application was the limit, which is no deficit. */
SEC("struct_ops")
void BPF_PROG(bbr_robust_cwnd_event, struct sock *sk, enum tcp_ca_event event)
{
	bbr_cwnd_event(sk, event);
}

SEC("struct_ops")
void BPF_PROG(bbr_robust_set_state, struct sock *sk, __u8 new_state)
{
	bbr_set_state(sk, new_state);
}

SEC("struct_ops")
__u32 BPF_PROG(bbr_robust_ssthresh, struct sock *sk)
{
	return bbr_ssthresh(sk);
}

SEC("struct_ops")
__u32 BPF_PROG(bbr_robust_undo_cwnd, struct sock *sk)
{
	return bbr_undo_cwnd(sk);
}

SEC("struct_ops")
__u32 BPF_PROG(bbr_robust_min_tso_segs, struct sock *sk)
{
	return bbr_min_tso_segs(sk);
}

SEC("struct_ops")
__u32 BPF_PROG(bbr_robust_sndbuf_expand, struct sock *sk)
{
	return bbr_sndbuf_expand(sk);
}

SEC(".struct_ops")
struct tcp_congestion_ops bbr_robust = {
    .init = (void *)bbr_robust_init,
    .cong_control = (void *)bbr_robust_main,
    .cwnd_event = (void *)bbr_robust_cwnd_event,
    .set_state = (void *)bbr_robust_set_state,
    .ssthresh = (void *)bbr_robust_ssthresh,
    .undo_cwnd = (void *)bbr_robust_undo_cwnd,
    .min_tso_segs = (void *)bbr_robust_min_tso_segs,
    .sndbuf_expand = (void *)bbr_robust_sndbuf_expand,
    .name = "bbr_robust",
};
