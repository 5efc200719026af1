/*
 * Serves one page of HTTP: page_server PORT BYTES [WORD]...
 *
 * One process answers one request of each connection after the other. Words: late (it listens after 3 s), never
 * (it does not listen), dies (it ends before it listens), error (it answers 503), silent (it does not answer).
 */
#include <arpa/inet.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CLIENTS 1000

static const char *words;

static int is(const char *word)
{
	return strstr(words, word) != NULL;
}

static int answer(int client, long bytes)
{
	static char request[4096], page[65536];
	int size = snprintf(page, sizeof(page), "HTTP/1.1 %s\r\nContent-Length: %ld\r\n\r\n",
			    is("error") ? "503 Busy" : "200 OK", bytes);
	ssize_t done = read(client, request, sizeof(request));

	if (done <= 0)
		return -1;
	if (is("silent"))
		return 0;
	for (bytes += size; bytes > 0; bytes -= done, size = sizeof(page)) {
		done = write(client, page, bytes < size ? bytes : size);
		if (done <= 0)
			return -1;
	}
	return 0;
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
	if (is("dies"))
		return fprintf(stderr, "no page\n"), 3;
	on.sin6_port = htons(atoi(argv[1]));
	all[0].fd = socket(AF_INET6, SOCK_STREAM, 0);
	if (all[0].fd < 0) {
		struct sockaddr_in on4 = {.sin_family = AF_INET, .sin_port = on.sin6_port};

		all[0].fd = socket(AF_INET, SOCK_STREAM, 0);
		setsockopt(all[0].fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
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
