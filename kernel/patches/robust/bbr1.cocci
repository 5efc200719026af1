// SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause
/// The inflight deficit repair of "2BRobust" (Elmenhorst, Aschenbruck, 2026, section 6.2) for version
/// 1 of BBR: net/ipv4/tcp_bbr.c of mainline Linux. cc/robust.h explains the rule.
///
/// Applied by `brobust kernel patch TREE`, or by hand: spatch --sp-file bbr1.cocci tcp_bbr.c
///
/// - After bbr_set_cwnd(), which counts bursts at the pacing rate of the moment: cwnd stays BBR's.
/// - There is nothing to undo: the next ACK sets BBR's own rate. bbr_set_pacing_rate() may always
///   lower it once full_bw_reached, without which there is no PROBE_BW.
//
// Comments have rules of their own. In the rule that adds the code they would spoil its layout.

@repaired@
@@
bbr_has_inflight_deficit(...) { ... }

@repair depends on !repaired@
identifier sk, rs, bbr, bw;
@@
void bbr_main(struct sock *sk, ..., const struct rate_sample *rs)
{
	...
	bbr_set_pacing_rate(sk, bw, bbr->pacing_gain);
	bbr_set_cwnd(sk, rs, rs->acked_sacked, bw, bbr->cwnd_gain);
+	if (bbr_has_inflight_deficit(sk, rs, bw))
+		bbr_set_pacing_rate(sk, bw, bbr_high_gain);
	...
}

@why depends on repair@
expression list arguments;
statement S;
@@
+	/* Not by bbr->pacing_gain: with a gain > 1 the gain cycle would wait for
+	 * that many BDPs in flight.
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
void bbr_main(struct sock *sk, ..., const struct rate_sample *rs)
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
