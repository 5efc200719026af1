// SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause
/// The inflight deficit repair of "2BRobust" (Elmenhorst, Aschenbruck, 2026, section 6.2) for version
/// 2 of BBR: net/ipv4/tcp_bbr2.c of google's v2alpha. cc/robust.h explains the rule.
///
/// Applied by `brobust kernel patch TREE`, or by hand: spatch --sp-file bbr2.cocci tcp_bbr2.c
///
/// - bw is bbr_bw(), at which BBR paces: the lesser of the most of two cycles and bw_lo. Where losses
///   have lowered bw_lo, less in flight than the most would fill is BBR's own wish, no deficit.
/// - In all phases of PROBE_BW, as in the paper. DOWN and CRUISE may want less than one BDP (headroom
///   below inflight_hi), and there the repair wants more than BBR. But they make up two to three
///   seconds of each cycle, the others a few round trips: without them a flow would go unrepaired
///   nearly all of the time. cwnd stays BBR's, with all its bounds.
/// - The gain is STARTUP's pacing gain: 2.887.
/// - The next ACK sets BBR's own rate, so there is nothing to undo, if it takes the slow path. The fast
///   path, for when the application is the limit, sets none; hence try_fast_path.
//
// Comments have rules of their own. In the rule that adds the code they would spoil its layout.

@repaired@
@@
bbr_has_inflight_deficit(...) { ... }

@repair depends on !repaired@
identifier sk, rs, bbr, bw;
@@
void bbr2_main(struct sock *sk, ..., const struct rate_sample *rs)
{
	...
	bbr_set_pacing_rate(sk, bw, bbr->pacing_gain);
	bbr_set_cwnd(sk, rs, rs->acked_sacked, bw, bbr->cwnd_gain, ...);
	bbr2_bound_cwnd_for_inflight_model(sk);
+	if (bbr_has_inflight_deficit(sk, rs, bw)) {
+		bbr_set_pacing_rate(sk, bw, bbr->params.high_gain);
+		bbr->try_fast_path = 0;
+	}
	...
}

@why depends on repair@
expression list arguments;
statement S;
@@
+	/* pacing_gain stays that of the phase. The next ACK has to take the slow
+	 * path, or this rate would stand while the application is the limit.
+	 */
	if (bbr_has_inflight_deficit(arguments)) S

@detect depends on repair@
typedef bool, u32;
@@
+static bool bbr_has_inflight_deficit(struct sock *sk,
+				     const struct rate_sample *rs, u32 bw)
+{
+	const struct tcp_sock *tp = tcp_sk(sk);
+	const struct bbr *bbr = inet_csk_ca(sk);
+
+	if (bbr->mode != BBR_PROBE_BW)
+		return false;
+	if (tp->app_limited || rs->is_app_limited)
+		return false;
+	if (tp->write_seq - tp->snd_nxt < tp->mss_cache)
+		return false;
+	return tcp_packets_in_flight(tp) < bbr_bdp(sk, bw, BBR_UNIT);
+}
+
void bbr2_main(struct sock *sk, ..., const struct rate_sample *rs)
{
	...
}

@depends on detect@
@@
+/* Is less than one BDP in flight, by our own estimate, though there is data to
+ * send? Then this sender does not keep to its pacing schedule, as happens to a
+ * virtual machine whose CPU is taken away: what left late is made up for with
+ * at most half of one gap between packets, so the delivery rate falls, and bw
+ * with it. Pacing at the high gain until the next ACK ends that.
+ *
+ * An application that has nothing to send looks alike. It takes three signs to
+ * tell it: it was the limit an RTT ago, it is now, or it will be with the last
+ * segment.
+ */
bool bbr_has_inflight_deficit(...) { ... }
