/*
 * Counts datagrams: counting_receiver PORT [gro] [polling]
 *
 * One thread receives (woken by epoll, or with `polling` by calling again and again); the other prints
 * every 250 ms of a timerfd how much has come.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/udp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

static unsigned long datagrams, bytes, largest;
static int udp, polling;

static void receive(void)
{
	static char buffer[65536];
	ssize_t size;

	while ((size = recv(udp, buffer, sizeof(buffer), MSG_DONTWAIT)) > 0) {
		datagrams++;
		bytes += size;
		if ((unsigned long)size > largest)
			largest = size;
	}
}

static void *receive_for_ever(void *argument)
{
	struct epoll_event event = {.events = EPOLLIN};
	int poll = epoll_create1(0);

	epoll_ctl(poll, EPOLL_CTL_ADD, udp, &event);
	for (;;) {
		if (!polling)
			epoll_wait(poll, &event, 1, -1);
		receive();
	}
	return argument;
}

int main(int count, char **words)
{
	struct sockaddr_in on = {.sin_family = AF_INET,
				 .sin_port = htons(count > 1 ? atoi(words[1]) : 0)};
	struct sockaddr_in6 on6 = {.sin6_family = AF_INET6, .sin6_port = on.sin_port};
	struct itimerspec every = {{0, 250000000}, {0, 250000000}};
	int timer = timerfd_create(CLOCK_MONOTONIC, 0), one = 1, is_ipv6, i;
	unsigned long long ticks;
	pthread_t thread;

	udp = socket(AF_INET6, SOCK_DGRAM, 0);
	is_ipv6 = udp >= 0;
	if (!is_ipv6)
		udp = socket(AF_INET, SOCK_DGRAM, 0);
	for (i = 2; i < count; i++) {
		polling |= !strcmp(words[i], "polling");
		if (!strcmp(words[i], "gro") &&
		    setsockopt(udp, SOL_UDP, UDP_GRO, &one, sizeof(one)))
			return perror("UDP_GRO"), 1;
	}
	if (bind(udp, is_ipv6 ? (void *)&on6 : (void *)&on, is_ipv6 ? sizeof(on6) : sizeof(on)) ||
	    pthread_create(&thread, NULL, receive_for_ever, NULL))
		return perror("counting_receiver"), 1;
	timerfd_settime(timer, 0, &every, NULL);
	setvbuf(stdout, NULL, _IOLBF, 0);
	while (read(timer, &ticks, sizeof(ticks)) > 0)
		printf("received %lu datagrams %lu bytes largest %lu\n", datagrams, bytes, largest);
	return 0;
}
