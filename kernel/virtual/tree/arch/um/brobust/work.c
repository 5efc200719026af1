// SPDX-License-Identifier: GPL-2.0-only
/*
 * What a sender's programs compute, where that is to take time: so much for each byte that they send
 * or receive over TCP or UDP, as for encryption, and for each connection that they accept, as for
 * its handshake. The controller gives the numbers on the command line; by default they are 0.
 *
 * A program is held in the call that it makes: before its bytes go down to TCP, and after bytes or a
 * connection have come up. There is one CPU. While a program works, interrupts and their packets
 * take what they need of it, the kernel's scheduler may prefer another program, and where the
 * timeslice ends the work stands still until the next one.
 */
#include <asm/delay.h>
#include <linux/math64.h>
#include <linux/minmax.h>
#include <linux/net.h>
#include <linux/sched.h>
#include <linux/socket.h>
#include <linux/uio.h>
#include <net/sock.h>

#include "internal.h"

/* The largest record of TLS (RFC 8446, section 5.1): a program encrypts one, sends it, and encrypts
 * the next. */
#define RECORD_BYTES 16384

/* Work that is still to be done, in ps. Negative: so much was done for bytes that were then not
 * sent, as there was no room for them, and that the program will send later. */
static s64 owed;

static bool counts(const struct socket *socket)
{
	return brobust && brobust->role == BROBUST_SENDER && current->mm && socket->sk &&
	       (socket->sk->sk_family == AF_INET || socket->sk->sk_family == AF_INET6);
}

static void work(u64 picoseconds)
{
	u64 left, charged;

	owed += picoseconds;
	if (owed < 1000)
		return;
	left = div_u64(owed, 1000);
	owed -= left * 1000;
	brobust->charged += left;
	while (left) {
		u64 step = min3(left, brobust_rest_of_timeslice(), brobust_until_event());

		charged = brobust->charged;
		/* What falls due meanwhile is done at its end. If that is nothing, the next timeslice
		 * begins. */
		um_ndelay(step);
		/* What the kernel itself needed meanwhile was not the program's. */
		left += brobust->charged - charged - step;
		cond_resched();
	}
}

static bool costs(const struct socket *socket)
{
	return brobust_sent_byte_ps && counts(socket);
}

static void begin_sending(size_t bytes)
{
	work(bytes * brobust_sent_byte_ps);
}

static void end_sending(size_t bytes, ssize_t sent)
{
	owed -= (s64)(bytes - max_t(ssize_t, sent, 0)) * brobust_sent_byte_ps;
}

/* Called by socket.c for whatever is sent; `send` sends it. */
int brobust_send(struct socket *socket, struct msghdr *message,
		 int (*send)(struct socket *, struct msghdr *))
{
	/* These mean something else for a part of a message than for all of it. */
	bool whole = socket->type != SOCK_STREAM ||
		     message->msg_flags & (MSG_ZEROCOPY | MSG_FASTOPEN | MSG_OOB);
	size_t left = msg_data_left(message), piece;
	int sent, total = 0;

	if (!costs(socket))
		return send(socket, message);
	do {
		piece = whole ? left : min_t(size_t, left, RECORD_BYTES);
		begin_sending(piece);
		iov_iter_truncate(&message->msg_iter, piece);
		sent = send(socket, message);
		left -= piece - msg_data_left(message);
		iov_iter_reexpand(&message->msg_iter, left);
		end_sending(piece, sent);
		if (sent < 0)
			return total ?: sent;
		total += sent;
	} while (left && sent == piece);
	return total;
}

/* Called by socket.c before Linux 6.5, where sendfile(2) sends page by page. */
ssize_t brobust_send_page(struct socket *socket, struct page *page, int offset, size_t size,
			  int flags, int (*send)(struct socket *, struct page *, int, size_t, int))
{
	int sent;

	if (!costs(socket))
		return send(socket, page, offset, size, flags);
	begin_sending(size);
	sent = send(socket, page, offset, size, flags);
	end_sending(size, sent);
	return sent;
}

/* Called by socket.c with the result of whatever is received. */
int brobust_received(struct socket *socket, int flags, int result)
{
	if (result > 0 && brobust_received_byte_ps && !(flags & MSG_PEEK) && counts(socket))
		work(result * brobust_received_byte_ps);
	return result;
}

/* A program has accepted a connection. */
void brobust_accepted(int number)
{
	struct socket *socket;
	bool counted;
	int error;

	if (!brobust_accept_ns)
		return;
	socket = sockfd_lookup(number, &error);
	if (!socket)
		return;
	counted = counts(socket);
	sockfd_put(socket);
	if (counted)
		work(brobust_accept_ns * 1000);
}
