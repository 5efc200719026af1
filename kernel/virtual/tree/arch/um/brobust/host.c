// SPDX-License-Identifier: GPL-2.0-only
/*
 * The part of a virtual-time kernel that talks to its host: the shared memory, the pipes to and
 * from the controller, and the seeded random numbers in place of the host's.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <init.h>
#include <os.h>

#include "brobust.h"

struct brobust_shared *brobust;

static int turns = -1, stops = -1;
static int calls = -1, program_calls = -1;
static u64 random_state;

static void refuse(const char *why)
{
	fprintf(stderr, "brobust: %s\n", why);
	exit(1);
}

static int __init brobust_setup(char *line, int *add)
{
	int memory;
	void *mapped;

	/* The argument is not passed on: the kernel's command line seeds its random number
	 * generator. */
	*add = 0;
	if (sscanf(line, "%d,%d,%d", &memory, &turns, &stops) != 3)
		refuse("brobust=MEMORY,TURNS,STOPS takes three open file descriptors");
	mapped = mmap(NULL, sizeof(*brobust), PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
	if (mapped == MAP_FAILED)
		refuse("cannot map the controller's memory");
	close(memory);
	brobust = mapped;
	if (brobust->magic != BROBUST_MAGIC || brobust->abi != BROBUST_ABI ||
	    brobust->size != sizeof(*brobust))
		refuse("the controller speaks another version; build the kernel again");
	random_state = brobust->seed;
	return 0;
}

__uml_setup("brobust=", brobust_setup,
	    "brobust=MEMORY,TURNS,STOPS\n"
	    "    Run in virtual time under brobust's controller: descriptors of the shared\n"
	    "    memory, and of the pipes from and to it.\n\n");

unsigned long brobust_sent_byte_ps, brobust_received_byte_ps, brobust_accept_ns;

/* Not passed on either: the same seed has the same random numbers, whatever work costs. */
static int __init work_setup(char *line, int *add)
{
	*add = 0;
	if (sscanf(line, "sent_byte_ps=%lu", &brobust_sent_byte_ps) != 1 &&
	    sscanf(line, "received_byte_ps=%lu", &brobust_received_byte_ps) != 1 &&
	    sscanf(line, "accept_ns=%lu", &brobust_accept_ns) != 1)
		refuse("brobust_work. is followed by sent_byte_ps=, received_byte_ps= or "
		       "accept_ns=, and a "
		       "number");
	return 0;
}

__uml_setup(
    "brobust_work.", work_setup,
    "brobust_work.sent_byte_ps=N, brobust_work.received_byte_ps=N, brobust_work.accept_ns=N\n"
    "    What work of a sender's programs costs (work.c).\n\n");

static int __init calls_setup(char *line, int *add)
{
	*add = 0;
	if (sscanf(line, "%d", &calls) != 1)
		refuse("brobust_calls=FILE takes an open file descriptor");
	return 0;
}

__uml_setup("brobust_calls=", calls_setup,
	    "brobust_calls=FILE\n"
	    "    Write every call of our congestion controls there (cc/call.h).\n\n");

static int __init program_calls_setup(char *line, int *add)
{
	*add = 0;
	if (sscanf(line, "%d", &program_calls) != 1)
		refuse("brobust_program_calls=FILE takes an open file descriptor");
	return 0;
}

__uml_setup("brobust_program_calls=", program_calls_setup,
	    "brobust_program_calls=FILE\n"
	    "    Write every call of programs there (struct brobust_program_call).\n\n");

/* Map the kernel's memory, at its start. Programs map parts of the file; without them, private memory
 * does as well, and of that the host gives large pages. */
int __init brobust_map_memory(void *at, int file, unsigned long long offset, unsigned long size,
			      int r, int w, int x)
{
	int flags = MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

	if (!brobust || brobust->programs)
		return os_map_memory(at, file, offset, size, r, w, x);
	if (mmap(at, size, PROT_READ | PROT_WRITE | PROT_EXEC, flags, -1, 0) == MAP_FAILED)
		return -errno;
	/* A host that has no large pages gives small ones. */
	madvise(at, size, MADV_HUGEPAGE);
	return 0;
}

/* Tell the controller that this kernel waits, and wait until it may go on. Exit with the
 * controller. */
void brobust_host_sync(void)
{
	char byte = 0;
	ssize_t n;

	do
		n = write(stops, &byte, 1);
	while (n < 0 && errno == EINTR);
	if (n == 1) {
		do
			n = read(turns, &byte, 1);
		while (n < 0 && errno == EINTR);
	}
	if (n != 1)
		_exit(1);
}

static void write_all(int file, const void *bytes, unsigned long size)
{
	const char *from = bytes;
	ssize_t n;

	while (size) {
		n = write(file, from, size);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return;
		from += n;
		size -= n;
	}
}

/* Write to the console, which the controller keeps. */
void brobust_host_print(const void *text, unsigned long size)
{
	write_all(STDOUT_FILENO, text, size);
}

int brobust_host_records_calls(void)
{
	return calls >= 0;
}

void brobust_host_record_call(const void *call, unsigned long size)
{
	write_all(calls, call, size);
}

int brobust_host_records_program_calls(void)
{
	return program_calls >= 0;
}

void brobust_host_record_program_call(const struct brobust_program_call *call)
{
	write_all(program_calls, call, sizeof(*call));
}

/* splitmix64 (Steele, Lea, Flood 2014), which is good enough for a simulation. */
long brobust_host_random(void *buffer, unsigned long size)
{
	unsigned char *to = buffer;
	unsigned long i;
	u64 z = 0;

	for (i = 0; i < size; i++) {
		if (i % 8 == 0) {
			z = random_state += 0x9e3779b97f4a7c15ULL;
			z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
			z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
			z ^= z >> 31;
		}
		to[i] = z >> (i % 8 * 8);
	}
	return size;
}
