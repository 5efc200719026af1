// SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause
/// What a socket remembers of its pacing: include/linux/tcp.h. See tcp_output.c.cocci.

@repaired@
@@
struct tcp_pacing_lag { ... };

@fields depends on !repaired@
@@
struct tcp_sock {
	...
	struct saved_syn *saved_syn;
+	struct tcp_pacing_lag pacing_lag;
};

@depends on fields@
typedef u32, u64;
@@
+/* How far internal pacing is behind its schedule, since the CPU was away.
+ *
+ * @lag_ns: still to be made up for
+ * @waited_ns: clock at the last pass that waited for pacing
+ * @resumed_ns: clock at the end of the last stall
+ * @slot_ns: how long the CPU was there before that
+ * @since_ns: clock at which stall_us[0] was begun
+ * @stall_us: longest stall since then, and in the time before
+ * @waits: nothing but pacing keeps the next packet
+ * @waited: nothing else kept the packet that is to be sent now
+ */
+struct tcp_pacing_lag {
+	u64 lag_ns;
+	u64 waited_ns;
+	u64 resumed_ns;
+	u64 slot_ns;
+	u64 since_ns;
+	u32 stall_us[2];
+	bool waits;
+	bool waited;
+};
+
struct tcp_sock {
	...
};

@longest depends on fields@
@@
+static inline u32 tcp_pacing_stall_us(const struct tcp_sock *tp)
+{
+	const struct tcp_pacing_lag *lag = &tp->pacing_lag;
+	u64 age = tp->tcp_clock_cache - lag->since_ns;
+
+	if (age >= 2 * NSEC_PER_SEC)
+		return 0;
+	if (age >= NSEC_PER_SEC)
+		return lag->stall_us[0];
+	return max(lag->stall_us[0], lag->stall_us[1]);
+}
+
enum tsq_enum { ... };

@depends on longest@
@@
+/* The longest stall of the last one to two seconds, us. */
u32 tcp_pacing_stall_us(...) { ... }
