// SPDX-License-Identifier: GPL-2.0-only
/*
 * Source and sink. They are kernel threads: without user space there is no ptrace, no initial RAM
 * disk, and no copy of data that nobody reads. Where programs are given (programs.c), those send
 * and receive instead, as a check on the code here.
 */
#include <linux/bvec.h>
#include <linux/delay.h>
#include <linux/in.h>
#include <linux/kthread.h>
#include <linux/net.h>
#include <linux/version.h>
#include <net/tcp.h>

#include "internal.h"

#define SINK_PORT 5201
/* iperf3 writes as much at once (DEFAULT_TCP_BLKSIZE). */
#define WRITE_BYTES (128 << 10)

union address {
	struct sockaddr_in ipv4;
	struct sockaddr_in6 ipv6;
};

static struct socket *sockets[BROBUST_FLOWS]; /* of a sender's flows, without transfers */
static struct page *nothing;

static int open_socket(struct socket **socket)
{
	int family = brobust->ip_version == 6 ? AF_INET6 : AF_INET;

	return sock_create_kern(&init_net, family, SOCK_STREAM, IPPROTO_TCP, socket);
}

/* Return a node's address, or that of any if `node` is 0. */
static union address address_of(u32 node, u16 port)
{
	union address address = {};

	if (brobust->ip_version == 6)
		address.ipv6 = (struct sockaddr_in6){
		    .sin6_family = AF_INET6,
		    .sin6_port = htons(port),
		    .sin6_addr = node ? brobust_ipv6_address(node) : in6addr_any,
		};
	else
		address.ipv4 = (struct sockaddr_in){
		    .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(node)};
	return address;
}

static int address_size(void)
{
	return brobust->ip_version == 6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

/* What is sent is never read, so the stack is given the same pages again and again, where it can
 * take pages. */
static int write_some(struct socket *socket, u32 size)
{
	struct kvec block = {.iov_base = page_address(nothing), .iov_len = size};
	struct msghdr message = {};
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 5, 0)
	struct bio_vec pages;

	/* So many pages of 4 KiB do not fit into the largest packets. */
	if (brobust->tso_max_size <= GSO_LEGACY_MAX_SIZE) {
		bvec_set_page(&pages, nothing, size, 0);
		iov_iter_bvec(&message.msg_iter, ITER_SOURCE, &pages, 1, size);
		message.msg_flags = MSG_SPLICE_PAGES;
		return sock_sendmsg(socket, &message);
	}
#endif
	return kernel_sendmsg(socket, &message, &block, 1, size);
}

/* Go on when the vCPU may run on which sources do: the one on which ACKs arrive, which wakes them
 * up as soon as there is room. After a sleep they may be on another. */
static void enter_vcpu_of_sources(void)
{
	while (!brobust_enter_vcpu(brobust->rx_vcpu))
		brobust_sleep_until(brobust_vcpu_from(brobust->rx_vcpu, brobust_now()));
}

/* Write until `until`, or until `limit` bytes are written. Return false if the flow is over. */
static bool write_bulk(struct socket *socket, u64 until, u64 limit)
{
	while (brobust_now() < until && limit) {
		u32 size = min_t(u64, limit, WRITE_BYTES);
		u64 left = until - brobust_now();
		int sent;

		socket->sk->sk_sndtimeo =
		    left > NSEC_PER_SEC * 3600 ? MAX_SCHEDULE_TIMEOUT : nsecs_to_jiffies(left) + 1;
		enter_vcpu_of_sources();
		sent = write_some(socket, size);
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
		write_bulk(socket, flow->stop, U64_MAX);
		break;
	default:
		write_bulk(socket, flow->stop, flow->bytes_or_on_ns ?: U64_MAX);
	}
}

static int open_flow(struct socket *socket, u32 number)
{
	union address local = address_of(brobust->address, brobust->first_port + number);
	union address remote = address_of(brobust->receiver, SINK_PORT);
	int error;

	lock_sock(socket->sk);
	error = tcp_set_congestion_control(socket->sk, brobust->flow[number].cc, true, true);
	release_sock(socket->sk);
	error = error ?: kernel_bind(socket, (void *)&local, address_size());
	return error ?: kernel_connect(socket, (void *)&remote, address_size(), 0);
}

static int source(void *argument)
{
	u32 number = (unsigned long)argument;
	const struct brobust_flow *flow = &brobust->flow[number];
	struct socket *socket = NULL;
	int error;

	brobust_sleep_until(flow->start);
	enter_vcpu_of_sources();
	error = open_socket(&socket);
	if (!error) {
		if (number < brobust->transfers_from)
			sockets[number] = socket;
		error = open_flow(socket, number);
	}
	if (error)
		brobust->stats[number].error = -error;
	else
		send_pattern(socket, flow);
	/* The kernel still sends what is in the socket's buffer. */
	if (socket && number < brobust->transfers_from)
		kernel_sock_shutdown(socket, SHUT_WR);
	else if (socket)
		sock_release(socket);
	return 0;
}

/* Open each transfer at its start, so that there are only threads of those under way. */
static int open_transfers(void *unused)
{
	unsigned long number;

	for (number = brobust->transfers_from; number < brobust->flows; number++)
		if (brobust->flow[number].used) {
			brobust_sleep_until(brobust->flow[number].start);
			kthread_run(source, (void *)number, "source");
		}
	return 0;
}

/* The sockets that have something to read. They are read as soon as the packets of an interrupt are
 * handled, as a thread would that waits for them, but without the time that it takes the host to
 * wake one. */
static struct sock *readable[BROBUST_FLOWS];
static u32 readables;

static void note_readable(struct sock *sk)
{
	u32 i;

	for (i = 0; i < readables; i++)
		if (readable[i] == sk)
			return;
	if (readables < BROBUST_FLOWS)
		readable[readables++] = sk;
}

/* As recvmsg(2), let the receive buffer grow after each packet, not after all. */
static int discard(read_descriptor_t *of, struct sk_buff *skb, unsigned int offset, size_t size)
{
	struct tcp_sock *tp = of->arg.data;

	WRITE_ONCE(tp->copied_seq, tp->copied_seq + size);
	tcp_rcv_space_adjust((struct sock *)tp);
	return size;
}

/* In a softirq a socket's lock is taken as the stack does there, and not waited for. */
static void read_sink(struct sock *sk)
{
	static u64 latest[BROBUST_FLOWS];
	u32 number = ntohs(inet_sk(sk)->inet_dport) - brobust->first_port;
	read_descriptor_t everything = {.count = 1, .arg.data = sk};
	int size = 0;

	local_bh_disable();
	bh_lock_sock(sk);
	if (!sock_owned_by_user(sk)) {
		size = tcp_read_sock(sk, &everything, discard);
		if (size <= 0) /* recvmsg(2) also then looks whether an ACK is due */
			tcp_cleanup_rbuf(sk, 0);
	}
	bh_unlock_sock(sk);
	local_bh_enable();
	if (number >= brobust->flows)
		return;
	if (size > 0)
		latest[number] = brobust_now();
	brobust->stats[number].received = tcp_sk(sk)->bytes_received;
	if (sk->sk_shutdown & RCV_SHUTDOWN)
		brobust->stats[number].ended = latest[number];
}

void brobust_read_sinks(void)
{
	u32 i;

	for (i = 0; i < readables; i++)
		read_sink(readable[i]);
	readables = 0;
}

static int listener(void *argument)
{
	struct socket *listening = argument, *socket;

	while (!kernel_accept(listening, &socket, 0)) {
		socket->sk->sk_data_ready = note_readable;
		read_sink(socket->sk);
	}
	return 0;
}

static int listen(void)
{
	union address local = address_of(0, SINK_PORT);
	struct socket *socket;
	int error = open_socket(&socket);

	error = error ?: kernel_bind(socket, (void *)&local, address_size());
	error = error ?: kernel_listen(socket, BROBUST_FLOWS);
	if (!error)
		kthread_run(listener, socket, "listener");
	return error;
}

/* The flows of this sender that have sent or received something since the last exchange. */
static u32 changed[BROBUST_FLOWS], changes;
static bool is_changed[BROBUST_FLOWS];

void brobust_flow_changed(u32 number)
{
	if (is_changed[number] || !sockets[number])
		return;
	is_changed[number] = true;
	changed[changes++] = number;
}

static void report_changes(void)
{
	/* A packet that is being sent when a buffer is full is counted when it has been sent. */
	if (brobust->reason == BROBUST_DRAIN)
		return;
	while (changes) {
		u32 number = changed[--changes];
		const struct tcp_sock *tp = tcp_sk(sockets[number]->sk);

		is_changed[number] = false;
		brobust->stats[number].acked = tp->bytes_acked;
		brobust->stats[number].retransmits = tp->total_retrans;
	}
}

int brobust_flows_start(void)
{
	unsigned long number;

	if (brobust->role == BROBUST_RECEIVER)
		return listen();
	brobust_before_exchange = report_changes;
	nothing = alloc_pages(GFP_KERNEL | __GFP_ZERO | __GFP_COMP, get_order(WRITE_BYTES));
	if (!nothing)
		return -ENOMEM;
	for (number = 0; number < brobust->transfers_from; number++)
		if (brobust->flow[number].used)
			kthread_run(source, (void *)number, "source");
	if (brobust->transfers_from < brobust->flows) {
		sysctl_tcp_max_orphans = BROBUST_FLOWS;
		kthread_run(open_transfers, NULL, "transfers");
	}
	return 0;
}
