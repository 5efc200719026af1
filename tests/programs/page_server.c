/*
 * Serves one page of HTTP: page_server PORT BYTES [WORD]...
 *
 * One process answers one request of each connection after the other. Words: late (it listens after 3 s), never
 * (it does not listen), forks (for ever), ends, dies (before it listens), error (it answers 503), empty (it answers 204),
 * silent (it does not answer), once (it closes each connection after a page), mixed (it sends by write, sendfile,
 * MSG_ZEROCOPY and io_uring in turn, and listens with SO_REUSEPORT).
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <linux/io_uring.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CLIENTS 1000

static const char *words;

static int is(const char *word)
{
	return strstr(words, word) != NULL;
}

/* One call of io_uring that sends, and its result. */
static ssize_t send_by_uring(int to, const void *from, size_t size)
{
	static struct io_uring_params params;
	static struct io_uring_sqe *entry;
	static int ring = -1;
	static char *map;
	unsigned *tail, *head;

	if (ring < 0) {
		ring = syscall(SYS_io_uring_setup, 1, &params);
		map =
		    mmap(NULL, params.cq_off.cqes + params.cq_entries * sizeof(struct io_uring_cqe),
			 PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQ_RING);
		entry = mmap(NULL, sizeof(*entry), PROT_READ | PROT_WRITE, MAP_SHARED, ring,
			     IORING_OFF_SQES);
		if (ring < 0 || map == MAP_FAILED || entry == MAP_FAILED)
			return perror("io_uring"), -1;
	}
	*entry = (struct io_uring_sqe){
	    .opcode = IORING_OP_SEND, .fd = to, .addr = (unsigned long)from, .len = size};
	tail = (unsigned *)(map + params.sq_off.tail);
	__atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
	if (syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) != 1)
		return perror("io_uring_enter"), -1;
	head = (unsigned *)(map + params.cq_off.head);
	size = (*head)++ & *(unsigned *)(map + params.cq_off.ring_mask);
	return ((struct io_uring_cqe *)(map + params.cq_off.cqes))[size].res;
}

/* Send some of the page, each time in another way if asked to. */
static ssize_t send_some(int to, const void *from, size_t size)
{
	static int way, file;
	off_t begin = 0;
	int one = 1;

	if (!is("mixed"))
		return write(to, from, size);
	switch (way++ % 4) {
	case 0:
		if (!file) {
			file = memfd_create("page", 0);
			ftruncate(file, 65536);
		}
		return sendfile(to, file, &begin, size);
	case 1:
		if (setsockopt(to, SOL_SOCKET, SO_ZEROCOPY, &one, sizeof(one)))
			return perror("SO_ZEROCOPY"), -1;
		return send(to, from, size, MSG_ZEROCOPY);
	case 2:
		return send_by_uring(to, from, size);
	default:
		return write(to, from, size);
	}
}

static int answer(int client, long bytes)
{
	static char request[4096], page[65536], control[256];
	struct msghdr copied = {.msg_control = control, .msg_controllen = sizeof(control)};
	int size = snprintf(page, sizeof(page), "HTTP/1.1 %s\r\n%sContent-Length: %ld\r\n\r\n",
			    is("error") ? "503 Busy" : "200 OK",
			    is("once") ? "Connection: close\r\n" : "", bytes);
	ssize_t done = recv(client, request, sizeof(request), MSG_DONTWAIT);

	if (done < 0 && recvmsg(client, &copied, MSG_ERRQUEUE | MSG_DONTWAIT) >= 0)
		return 0; /* the kernel needs what MSG_ZEROCOPY gave it no more */
	if (done <= 0)
		return -1;
	if (is("silent"))
		return 0;
	if (is("empty")) {
		static const char none[] = "HTTP/1.1 204 No Content\r\n\r\n";

		return write(client, none, sizeof(none) - 1) < 0 ? -1 : 0;
	}
	if (write(client, page, size) != size)
		return -1;
	for (; bytes > 0; bytes -= done) {
		size = bytes < (long)sizeof(page) ? bytes : (long)sizeof(page);
		done = send_some(client, page, size);
		if (done <= 0)
			return -1;
	}
	return is("once") ? -1 : 0;
}

int main(int count, char **argv)
{
	struct sockaddr_in6 on = {.sin6_family = AF_INET6};
	static struct pollfd all[CLIENTS];
	int used = 1, one = 1, i;
	long bytes = atol(argv[2]);

	signal(SIGPIPE, SIG_IGN);
	words = count > 3 ? argv[3] : "";
	if (is("late"))
		sleep(3);
	while (is("never"))
		pause();
	while (is("forks"))
		fork();
	if (is("ends"))
		return 0;
	if (is("dies"))
		return fprintf(stderr, "no page\n"), 3;
	on.sin6_port = htons(atoi(argv[1]));
	all[0].fd = socket(AF_INET6, SOCK_STREAM, 0);
	if (all[0].fd < 0) {
		struct sockaddr_in on4 = {.sin_family = AF_INET, .sin_port = on.sin6_port};

		all[0].fd = socket(AF_INET, SOCK_STREAM, 0);
		if (is("mixed") &&
		    setsockopt(all[0].fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one)))
			return perror("SO_REUSEPORT"), 1;
		if (bind(all[0].fd, (void *)&on4, sizeof(on4)))
			return perror("bind"), 1;
	} else if (bind(all[0].fd, (void *)&on, sizeof(on))) {
		return perror("bind"), 1;
	}
	if (listen(all[0].fd, CLIENTS))
		return perror("listen"), 1;
	for (;;) {
		for (i = 0; i < used; i++)
			all[i].events = i || used < CLIENTS ? POLLIN : 0;
		poll(all, used, -1);
		for (i = used - 1; i > 0; i--)
			if (all[i].revents && answer(all[i].fd, bytes)) {
				close(all[i].fd);
				all[i] = all[--used];
			}
		if (all[0].revents)
			all[used++].fd = accept(all[0].fd, NULL, NULL);
	}
}
