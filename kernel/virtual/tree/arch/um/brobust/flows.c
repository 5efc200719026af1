// SPDX-License-Identifier: GPL-2.0-only
/*
 * Source and sink. They are kernel threads: without user space there is no ptrace, no initial RAM
 * disk, and no copy of data that nobody reads. Where programs are given (programs.c), those send
 * and receive instead, as a check on the code here.
 */
#include <linux/delay.h>
#include <linux/in.h>
#include <linux/kthread.h>
#include <linux/net.h>
#include <net/tcp.h>

#include "internal.h"

#define SINK_PORT 5201
/* iperf3 writes as much at once (DEFAULT_TCP_BLKSIZE). */
#define WRITE_BYTES (128 << 10)

static struct socket *sockets[BROBUST_FLOWS];
static char nothing[WRITE_BYTES];

/* Write until `until`, or until `limit` bytes are written. Return false if the flow is over. */
static bool write_bulk(struct socket *socket, u64 until, u64 limit)
{
	while (brobust_now() < until && limit) {
		u32 size = min_t(u64, limit, WRITE_BYTES);
		struct kvec block = {.iov_base = nothing, .iov_len = size};
		struct msghdr message = {};
		u64 left = until - brobust_now();
		int sent;

		socket->sk->sk_sndtimeo =
		    left > NSEC_PER_SEC * 3600 ? MAX_SCHEDULE_TIMEOUT : nsecs_to_jiffies(left) + 1;
		sent = kernel_sendmsg(socket, &message, &block, 1, size);
		if (sent < 0 && sent != -EAGAIN)
			return false;
		if (sent > 0)
			limit -= sent;
	}
	return true;
}

static void send_pattern(struct socket *socket, const struct brobust_flow *flow)
{
	u64 at = flow->start;

	switch (flow->pattern) {
	case BROBUST_RATE:
		for (; at < flow->stop; at += flow->period_or_off_ns) {
			brobust_sleep_until(at);
			if (!write_bulk(socket, flow->stop, flow->bytes_or_on_ns))
				return;
		}
		break;
	case BROBUST_ONOFF:
		for (; at < flow->stop; at += flow->bytes_or_on_ns + flow->period_or_off_ns) {
			brobust_sleep_until(at);
			if (!write_bulk(socket, min(at + flow->bytes_or_on_ns, flow->stop),
					U64_MAX))
				return;
		}
		break;
	case BROBUST_IDLE:
		if (!write_bulk(socket, min(at + flow->bytes_or_on_ns, flow->stop), U64_MAX))
			return;
		brobust_sleep_until(
		    min(at + flow->bytes_or_on_ns + flow->period_or_off_ns, flow->stop));
		fallthrough;
	default:
		write_bulk(socket, flow->stop, U64_MAX);
	}
}

static int open_flow(struct socket *socket, u32 number)
{
	struct sockaddr_in local = {.sin_family = AF_INET,
				    .sin_port = htons(brobust->first_port + number),
				    .sin_addr.s_addr = htonl(brobust->address)};
	struct sockaddr_in remote = {.sin_family = AF_INET,
				     .sin_port = htons(SINK_PORT),
				     .sin_addr.s_addr = htonl(brobust->receiver)};
	int error;

	lock_sock(socket->sk);
	error = tcp_set_congestion_control(socket->sk, brobust->flow[number].cc, true, true);
	release_sock(socket->sk);
	error = error ?: kernel_bind(socket, (void *)&local, sizeof(local));
	return error ?: kernel_connect(socket, (void *)&remote, sizeof(remote), 0);
}

static int source(void *argument)
{
	u32 number = (unsigned long)argument;
	const struct brobust_flow *flow = &brobust->flow[number];
	struct socket *socket = NULL;
	int error;

	brobust_sleep_until(flow->start);
	error = sock_create_kern(&init_net, AF_INET, SOCK_STREAM, IPPROTO_TCP, &socket);
	if (!error) {
		sockets[number] = socket;
		error = open_flow(socket, number);
	}
	if (error)
		brobust->stats[number].error = -error;
	else
		send_pattern(socket, flow);
	if (socket)
		kernel_sock_shutdown(socket, SHUT_WR);
	return 0; /* the kernel still sends what is in the socket's buffer */
}

static int sink(void *argument)
{
	struct socket *socket = argument;

	for (;;) {
		struct kvec block = {.iov_base = NULL, .iov_len = 64 << 20};
		struct msghdr message = {.msg_flags = MSG_TRUNC};

		if (kernel_recvmsg(socket, &message, &block, 1, block.iov_len, MSG_TRUNC) <= 0)
			return 0;
	}
}

static int listener(void *argument)
{
	struct socket *listening = argument, *socket;

	while (!kernel_accept(listening, &socket, 0)) {
		u32 number = ntohs(inet_sk(socket->sk)->inet_dport) - brobust->first_port;

		if (number < brobust->flows)
			sockets[number] = socket;
		kthread_run(sink, socket, "sink");
	}
	return 0;
}

static int listen(void)
{
	struct sockaddr_in local = {
	    .sin_family = AF_INET, .sin_port = htons(SINK_PORT), .sin_addr.s_addr = INADDR_ANY};
	struct socket *socket;
	int error = sock_create_kern(&init_net, AF_INET, SOCK_STREAM, IPPROTO_TCP, &socket);

	error = error ?: kernel_bind(socket, (void *)&local, sizeof(local));
	error = error ?: kernel_listen(socket, BROBUST_FLOWS);
	if (!error)
		kthread_run(listener, socket, "listener");
	return error;
}

static void report_flows(void)
{
	u32 number;

	for (number = 0; number < brobust->flows; number++) {
		struct brobust_flow_stats *stats = &brobust->stats[number];
		const struct tcp_sock *tp;

		if (!sockets[number])
			continue;
		tp = tcp_sk(sockets[number]->sk);
		stats->received = tp->bytes_received;
		stats->acked = tp->bytes_acked;
		stats->retransmits = tp->total_retrans;
	}
}

int brobust_flows_start(void)
{
	unsigned long number;

	brobust_before_exchange = report_flows;
	if (brobust->role == BROBUST_RECEIVER)
		return listen();
	for (number = 0; number < brobust->flows; number++)
		if (brobust->flow[number].used)
			kthread_run(source, (void *)number, "source");
	return 0;
}
