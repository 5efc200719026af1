// SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause
/// Room for what BBR learns from losses: include/net/inet_connection_sock.h. See tcp_bbr.c.cocci.

@@
typedef u64;
expression size;
@@
struct inet_connection_sock {
	...
-	u64 icsk_ca_priv[size];
+	u64 icsk_ca_priv[120 / sizeof(u64)];
	...
};
