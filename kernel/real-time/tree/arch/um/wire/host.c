// SPDX-License-Identifier: GPL-2.0-only
/*
 * The part of a kernel in real time that talks to its host: the socket that wire.c's frames cross.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include <init.h>

#include "wire.h"

int wire_socket = -1;

static int __init wire_setup(char *line, int *add)
{
	*add = 0;
	if (sscanf(line, "%d", &wire_socket) == 1)
		return 0;
	fprintf(stderr, "brobust: brobust_wire=SOCKET takes an open file descriptor\n");
	exit(1);
}

__uml_setup("brobust_wire=", wire_setup,
	    "brobust_wire=SOCKET\n"
	    "    Run in real time; the network device eth0 sends and receives each frame as a\n"
	    "    message of this socket.\n\n");

/* Return the size of the frame, or an error's negative number. */
long wire_send(const void *frame, unsigned long size)
{
	ssize_t n;

	do
		n = send(wire_socket, frame, size, MSG_DONTWAIT | MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

/* Return the size of the frame, an error's negative number, or 0 when the other end is gone. */
long wire_receive(void *frame, unsigned long size)
{
	ssize_t n;

	do
		n = recv(wire_socket, frame, size, MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}
