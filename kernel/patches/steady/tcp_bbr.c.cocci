// SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause
/// What BBR version 1 needs where the pacing schedule is kept (tcp_output.c.cocci): a window for what
/// is sent ahead, and a bound for it that losses teach. net/ipv4/tcp_bbr.c of mainline Linux.
///
/// Version 3 has its own bound (inflight_hi), and would need the window only.

@repaired@
@@
bbr_update_inflight_cap(...) { ... }

@state depends on !repaired@
typedef u32;
@@
struct bbr {
	...
+	u32	inflight_cap;
+	u32	round_lost;
+	u32	round_most;
};

@window depends on state@
identifier sk, rs, bw, target_cwnd;
@@
bbr_set_cwnd(struct sock *sk, const struct rate_sample *rs, ..., u32 bw, int gain)
{
	...
	target_cwnd += bbr_ack_aggregation_cwnd(sk);
+	target_cwnd += bbr_stall_cwnd(sk, bw);
	...
}

@bound depends on window@
identifier cwnd, tp;
@@
bbr_set_cwnd(...)
{
	...
done:
+	if (bbr->inflight_cap)
+		cwnd = min(cwnd, bbr->inflight_cap);
	tcp_snd_cwnd_set(tp, min(cwnd, tp->snd_cwnd_clamp));
	...
}

@learn depends on bound@
identifier sk, rs;
@@
bbr_update_model(struct sock *sk, const struct rate_sample *rs)
{
	bbr_update_bw(sk, rs);
+	bbr_update_inflight_cap(sk, rs);
	...
}

@stall depends on learn@
typedef u64, bool;
@@
+static u32 bbr_stall_cwnd(struct sock *sk, u32 bw)
+{
+	return (u64)bw * tcp_pacing_stall_us(tcp_sk(sk)) >> BW_SCALE;
+}
+
void bbr_set_cwnd(...)
{
	...
}

@cap depends on learn@
@@
+static void bbr_update_inflight_cap(struct sock *sk,
+				    const struct rate_sample *rs)
+{
+	struct tcp_sock *tp = tcp_sk(sk);
+	struct bbr *bbr = inet_csk_ca(sk);
+	u32 lost = tp->lost - bbr->round_lost;
+	u32 cap = bbr->inflight_cap;
+	u32 most;
+
+	bbr->round_most = max(bbr->round_most, rs->prior_in_flight);
+	if (!bbr->round_start)
+		return;
+	most = bbr->round_most;
+	if (cap && most * 10 >= cap * 9)
+		cap += max(cap / 100, 1U);
+	if (lost * 100 > most)
+		cap = max3(most - min(lost, most), most * 7 / 10, 4U);
+	if (!tcp_pacing_stall_us(tp))
+		cap = 0;
+	bbr->inflight_cap = cap;
+	bbr->round_lost = tp->lost;
+	bbr->round_most = tcp_packets_in_flight(tp);
+}
+
void bbr_update_model(...)
{
	...
}

@depends on cap@
@@
+/* While the schedule is behind, more is sent than bw, for as long as the CPU
+ * was away: the window must hold that, too.
+ */
u32 bbr_stall_cwnd(...) { ... }

@depends on cap@
@@
+/* What is sent ahead may be more than the path's buffer holds, and this version
+ * does not mind losses. So while there are stalls, a round that loses more than
+ * 1 % bounds what may be in flight to what was delivered, cutting it by 30 % at
+ * most. Every other round adds 1 %, if the bound was reached.
+ */
void bbr_update_inflight_cap(...) { ... }
