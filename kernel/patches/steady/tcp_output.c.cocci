// SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause
/// A pacing schedule that is kept on average: net/ipv4/tcp_output.c of mainline Linux, 6.1 and later.
/// docs/repair.md argues the rule. A kernel can keep the schedule where it is made: simpler than
/// cc/steady.h, which has to raise the rate instead.
///
/// Applied by `brobust kernel patch TREE --repair steady`, with the other files here.
//
// Comments have rules of their own. In the rule that adds the code they would spoil its layout.

@repaired@
@@
tcp_pacing_stalled(...) { ... }

@check depends on !repaired@
typedef bool;
identifier sk, tp;
@@
static bool tcp_pacing_check(struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);
	...
	if (tp->tcp_wstamp_ns <= tp->tcp_clock_cache)
-		return false;
+	{
+		tp->pacing_lag.waited = tp->pacing_lag.waits;
+		tp->pacing_lag.waits = false;
+		return false;
+	}
+	tcp_pacing_waits(tp);
	...
}

@send depends on check@
typedef u64;
identifier credit, tp, prior_wstamp;
@@
static void tcp_update_skb_after_send(struct sock *sk, struct sk_buff *skb, u64 prior_wstamp)
{
	<...
	u64 credit = tp->tcp_wstamp_ns - prior_wstamp;
+
+	len_ns = tcp_pacing_catch_up(sk, skb->len, len_ns, credit);
	...>
}

@waits depends on send@
@@
+static void tcp_pacing_waits(struct tcp_sock *tp)
+{
+	struct tcp_pacing_lag *lag = &tp->pacing_lag;
+	bool room = tcp_packets_in_flight(tp) < tcp_snd_cwnd(tp);
+
+	if (tp->app_limited || !before(tp->snd_nxt, tcp_wnd_end(tp)))
+		room = false;
+	lag->waits = room;
+	lag->waited_ns = tp->tcp_clock_cache;
+}
+
bool tcp_pacing_check(struct sock *sk)
{
	...
}

@stalled depends on waits@
@@
+static void tcp_pacing_stalled(struct tcp_sock *tp, u64 stall_ns)
+{
+	struct tcp_pacing_lag *lag = &tp->pacing_lag;
+	u64 age = tp->tcp_clock_cache - lag->since_ns;
+	u64 most;
+
+	if (age >= NSEC_PER_SEC) {
+		lag->stall_us[1] = tcp_pacing_stall_us(tp);
+		lag->stall_us[0] = 0;
+		lag->since_ns = tp->tcp_clock_cache;
+	}
+	stall_ns = min_t(u64, stall_ns, 250 * NSEC_PER_MSEC);
+	lag->stall_us[0] = max_t(u32, lag->stall_us[0], stall_ns / NSEC_PER_USEC);
+	lag->slot_ns = max_t(s64, lag->waited_ns - lag->resumed_ns, 1);
+	lag->resumed_ns = tp->tcp_clock_cache;
+	most = (u64)tcp_pacing_stall_us(tp) * NSEC_PER_USEC;
+	lag->lag_ns = min_t(u64, lag->lag_ns + stall_ns, most);
+}
+
void tcp_update_skb_after_send(...)
{
	...
}

@catch_up depends on stalled@
typedef u32;
@@
+static u64 tcp_pacing_catch_up(struct sock *sk, u32 len, u64 len_ns, u64 late)
+{
+	struct tcp_sock *tp = tcp_sk(sk);
+	struct tcp_pacing_lag *lag = &tp->pacing_lag;
+	u64 stall;
+	u64 times;
+	u64 least;
+	u64 gap_ns;
+
+	if (lag->waited && late > len_ns / 2 + 100 * NSEC_PER_USEC)
+		tcp_pacing_stalled(tp, late - len_ns / 2);
+	lag->waited = false;
+	if (!lag->lag_ns)
+		return len_ns;
+	stall = (u64)tcp_pacing_stall_us(tp) * NSEC_PER_USEC;
+	times = min_t(u64, 256 + div64_u64(6 * 256 * stall, lag->slot_ns), 20 * 256);
+	gap_ns = div64_u64(len_ns * 256, times);
+	least = div64_ul((u64)len * NSEC_PER_SEC, sk->sk_max_pacing_rate);
+	gap_ns = clamp_t(u64, gap_ns, least, len_ns);
+	lag->lag_ns -= min_t(u64, lag->lag_ns, len_ns - gap_ns);
+	return gap_ns;
+}
+
void tcp_update_skb_after_send(...)
{
	...
}

@depends on catch_up@
@@
+/* A packet has to wait for its departure: does nothing else keep it? */
void tcp_pacing_waits(...) { ... }

@depends on catch_up@
@@
+/* The CPU was away for stall_ns beyond what tcp_update_skb_after_send() makes
+ * up for. RTO_MIN is 200 ms: after longer ones a connection begins anew, and
+ * so may its schedule. What a whole slot could not make up for never will be.
+ */
void tcp_pacing_stalled(...) { ... }

@depends on catch_up@
@@
+/* The gap after a packet, shortened while the schedule is behind: a stall is
+ * made up for in a sixth of the time for which the CPU was there, at 20 times
+ * the rate at most, and not beyond SO_MAX_PACING_RATE. Slots differ, so not in
+ * all of it; and not at once, since a buffer drains while it is filled.
+ */
u64 tcp_pacing_catch_up(...) { ... }
