/*
 * Sends datagrams at a rate: paced_sender ADDRESS PORT MBIT_PER_S BYTES SECONDS [gso=N] [txtime]
 *
 * It sleeps until each departure (clock_nanosleep). With gso=N it hands N datagrams to the kernel at a
 * time; with txtime it hands each over a millisecond early and lets fq wait (SO_TXTIME). Its payload is
 * random (getrandom), and it prints what it sent, the stack's address (which the kernel draws) and the
 * first of its time stamp counter.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/net_tstamp.h>
#include <netinet/udp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

#define SECOND 1000000000ull
#define AHEAD 1000000ull

static char payload[65536];

static uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * SECOND + time.tv_nsec;
}

static void sleep_until(uint64_t when)
{
	struct timespec time = {when / SECOND, when % SECOND};

	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL);
}

static void put(struct msghdr *message, struct cmsghdr **at, int level, int type, const void *value,
		size_t size)
{
	*at = *at ? CMSG_NXTHDR(message, *at) : CMSG_FIRSTHDR(message);
	(*at)->cmsg_level = level;
	(*at)->cmsg_type = type;
	(*at)->cmsg_len = CMSG_LEN(size);
	memcpy(CMSG_DATA(*at), value, size);
}

static int send_one(int socket, size_t size, uint16_t segment, uint64_t departure)
{
	char control[CMSG_SPACE(8) + CMSG_SPACE(2)] = {0};
	struct iovec block = {payload, size};
	struct msghdr message = {.msg_iov = &block,
				 .msg_iovlen = 1,
				 .msg_control = control,
				 .msg_controllen = sizeof(control)};
	struct cmsghdr *at = NULL;
	size_t used = 0;

	if (departure)
		put(&message, &at, SOL_SOCKET, SCM_TXTIME, &departure, 8), used += CMSG_SPACE(8);
	if (segment)
		put(&message, &at, SOL_UDP, UDP_SEGMENT, &segment, 2), used += CMSG_SPACE(2);
	message.msg_controllen = used;
	if (!used)
		message.msg_control = NULL;
	return sendmsg(socket, &message, 0) == (ssize_t)size;
}

int main(int count, char **words)
{
	struct sockaddr_in to = {.sin_family = AF_INET};
	struct sockaddr_in6 to6 = {.sin6_family = AF_INET6};
	unsigned long at_once = 1, sent = 0, refused = 0;
	int txtime = 0, is_ipv6, i, udp;
	uint64_t start, at, every;
	size_t bytes;

	if (count < 6) {
		fprintf(stderr,
			"paced_sender ADDRESS PORT MBIT_PER_S BYTES SECONDS [gso=N] [txtime]\n");
		return 2;
	}
	to.sin_port = to6.sin6_port = htons(atoi(words[2]));
	is_ipv6 = inet_pton(AF_INET6, words[1], &to6.sin6_addr);
	inet_pton(AF_INET, words[1], &to.sin_addr);
	bytes = atoi(words[4]);
	for (i = 6; i < count; i++) {
		if (!strncmp(words[i], "gso=", 4))
			at_once = atoi(words[i] + 4);
		txtime |= !strcmp(words[i], "txtime");
	}
	udp = socket(is_ipv6 ? AF_INET6 : AF_INET, SOCK_DGRAM, 0);
	if (udp < 0 ||
	    connect(udp, is_ipv6 ? (void *)&to6 : (void *)&to, is_ipv6 ? sizeof(to6) : sizeof(to)))
		return perror("connect"), 1;
	if (txtime) {
		struct sock_txtime option = {.clockid = CLOCK_MONOTONIC};

		if (setsockopt(udp, SOL_SOCKET, SO_TXTIME, &option, sizeof(option)))
			return perror("SO_TXTIME"), 1;
	}
	every = at_once * bytes * 8 * 1000 / atof(words[3]);
	start = at = now() + AHEAD;
	for (; at < start + atof(words[5]) * SECOND; at += every) {
		sleep_until(txtime ? at - AHEAD : at);
		if (getrandom(payload, bytes < 64 ? bytes : 64, 0) < 0)
			return perror("getrandom"), 1;
		if (send_one(udp, at_once * bytes, at_once > 1 ? bytes : 0, txtime ? at : 0))
			sent += at_once;
		else
			refused++;
	}
	printf("sent %lu refused %lu stack %p counter %llu\n", sent, refused, (void *)&to,
	       __rdtsc());
	return 0;
}
