// SPDX-License-Identifier: GPL-2.0-only
/*
 * A node of the path: what a virtual-time kernel becomes at the end of its boot.
 */
#include <linux/if_link.h>
#include <linux/inetdevice.h>
#include <linux/init.h>
#include <linux/ipv6.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sched.h>
#include <linux/sysctl.h>
#include <net/net_namespace.h>
#include <net/pkt_sched.h>
#include <net/sock.h>
#include <net/tcp.h>

#include "internal.h"

int brobust_start_ipv6(void); /* af_inet6.c */

/* No neighbour, router or group is looked for: the device has no link-local address, and takes what
 * address and route the controller's commands give it. */
static int __init start_ipv6(void)
{
	struct ipv6_devconf *devices;
	int error = brobust_start_ipv6();

	if (error)
		return error;
	devices = init_net.ipv6.devconf_dflt;
	devices->accept_ra = 0;
	devices->addr_gen_mode = IN6_ADDR_GEN_MODE_NONE;
	if (brobust->role == BROBUST_BOTTLENECK)
		init_net.ipv6.devconf_all->forwarding = devices->forwarding = 1;
	return 0;
}

static int set_address(void)
{
	struct ifreq request = {.ifr_name = "eth0"};
	struct sockaddr_in *address = (struct sockaddr_in *)&request.ifr_addr;
	int error;

	if (brobust->ip_version == 6)
		return 0;
	address->sin_family = AF_INET;
	address->sin_addr.s_addr = htonl(brobust->address);
	error = devinet_ioctl(&init_net, SIOCSIFADDR, &request);
	if (error)
		return error;
	request.ifr_flags = IFF_UP | IFF_BROADCAST | IFF_NOARP;
	return devinet_ioctl(&init_net, SIOCSIFFLAGS, &request);
}

/* No flow may be limited by its socket's buffers, nor by what an earlier flow has left behind. The
 * testbed's guests have the same limits (python/brobust/testbed/init.sh). */
static void set_limits(void)
{
	struct netns_ipv4 *ipv4 = &init_net.ipv4;

	ipv4->sysctl_tcp_rmem[2] = brobust->tcp_memory;
	ipv4->sysctl_tcp_wmem[2] = brobust->tcp_memory;
	sysctl_tcp_mem[0] = sysctl_tcp_mem[1] = sysctl_tcp_mem[2] = LONG_MAX >> PAGE_SHIFT;
	ipv4->sysctl_tcp_nometrics_save = 1;
#ifdef HAS_PACING_LAG
	ipv4->sysctl_tcp_pacing_lag_us = brobust->pacing_lag_us;
#endif
	if (brobust->ecn)
		ipv4->sysctl_tcp_ecn = 1;
	if (brobust->role == BROBUST_BOTTLENECK) {
		IPV4_DEVCONF_ALL(&init_net, FORWARDING) = 1;
		IPV4_DEVCONF_ALL(&init_net, SEND_REDIRECTS) = 0;
		ipv4->devconf_dflt->data[IPV4_DEVCONF_FORWARDING - 1] = 1;
		ipv4->devconf_dflt->data[IPV4_DEVCONF_SEND_REDIRECTS - 1] = 0;
	}
}

/* Send the rtnetlink messages that the controller wrote to the kernel, and return the first
 * error. */
static int apply_netlink_commands(void)
{
	struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
	struct socket *socket;
	u32 at = 0;
	int error;

	if (!brobust->commands_size)
		return 0;
	error = sock_create_kern(&init_net, AF_NETLINK, SOCK_RAW, NETLINK_ROUTE, &socket);
	while (!error && at < brobust->commands_size) {
		struct nlmsghdr *command = (struct nlmsghdr *)(brobust->commands + at);
		struct kvec block = {.iov_base = command, .iov_len = command->nlmsg_len};
		struct msghdr message = {.msg_name = &kernel, .msg_namelen = sizeof(kernel)};
		struct {
			struct nlmsghdr header;
			struct nlmsgerr error;
			char rest[256];
		} answer;

		error = kernel_sendmsg(socket, &message, &block, 1, block.iov_len);
		if (error < 0)
			break;
		message = (struct msghdr){};
		block = (struct kvec){.iov_base = &answer, .iov_len = sizeof(answer)};
		error = kernel_recvmsg(socket, &message, &block, 1, sizeof(answer), 0);
		if (error < 0)
			break;
		error = answer.header.nlmsg_type == NLMSG_ERROR ? answer.error.error : -EPROTO;
		at += NLMSG_ALIGN(command->nlmsg_len);
	}
	return error;
}

static void refuse(const char *what, int error)
{
	snprintf(brobust->words, sizeof(brobust->words), "%s: error %d", what, -error);
	brobust_sync(BROBUST_REFUSED);
}

static int __init brobust_node(void)
{
	int error;

	if (!brobust)
		return 0;
	brobust_sync(BROBUST_READY);

	/* A run over IPv4 is what it is in a kernel that was built without IPv6. */
	error = brobust->ip_version == 6 ? start_ipv6() : 0;
	if (error)
		refuse("IPv6", error);
	do_sysctl_args();
	set_limits();
	if (brobust->qdisc[0]) {
		error = qdisc_set_default(brobust->qdisc);
		if (error)
			refuse("qdisc", error);
	}
	error = brobust_net_create();
	if (error)
		refuse("network device", error);
	error = set_address();
	if (error)
		refuse("address", error);
	error = apply_netlink_commands();
	if (error)
		refuse("IPv6 address, loopback or queueing discipline", error);
	error = brobust->programs ? brobust_programs_start() : brobust_flows_start();
	if (error)
		refuse("flows", error);
	/* There is no root file system to go on to. */
	for (;;)
		schedule_timeout_uninterruptible(MAX_SCHEDULE_TIMEOUT);
}
late_initcall_sync(brobust_node);
