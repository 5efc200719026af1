// SPDX-License-Identifier: GPL-2.0-only
/*
 * Every ptrace(2) of this kernel comes here: an executable that defines ptrace() does not get the C
 * library's. UML's callers differ from one version of Linux to the next; what they ask of the host
 * does not.
 *
 * The host takes the state of a process's FPU whole or not at all (xstateregs_set() in
 * arch/x86/kernel/fpu/regset.c). Until 6.12, UML keeps its first 2696 bytes (HOST_FP_SIZE), but a
 * host whose CPU has AMX has 11008 bytes: programs ended before their first instruction. Everything
 * beyond UML's part belongs to AMX. A program has to ask for AMX by arch_prctl(2), and UML passes
 * only the requests for segments on to the host, so that part is always in its initial state:
 * zeros.
 *
 * UML reads and writes the FPU's state at every stop of a program. What it writes is nearly always
 * what it has just read; then the host is not asked.
 */
#include <elf.h>
#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "brobust.h"

#ifndef NT_X86_XSTATE
#define NT_X86_XSTATE 0x202
#endif

/* Five times what the largest CPU has. The host would refuse the state of one that has more. */
static unsigned char whole[65536] __attribute__((aligned(8)));
static size_t host_size;
/* The process of which `whole` is the state: it has not run since that was read. 0: none. */
static long known;

static long get_xstate(long pid, struct iovec *kept)
{
	struct iovec all = {.iov_base = whole, .iov_len = sizeof(whole)};
	long result = syscall(SYS_ptrace, PTRACE_GETREGSET, pid, NT_X86_XSTATE, &all);

	if (result < 0)
		return result;
	host_size = all.iov_len;
	known = pid;
	if (kept->iov_len > host_size)
		kept->iov_len = host_size;
	memcpy(kept->iov_base, whole, kept->iov_len);
	return result;
}

/* memcmp() here is the kernel's, which compares byte by byte: a fifteenth of all that programs
 * cost. */
static int same(const void *left, const void *right, size_t size)
{
	const unsigned long *one = left, *other = right;

	for (; size >= sizeof(*one); size -= sizeof(*one))
		if (*one++ != *other++)
			return 0;
	return !memcmp(one, other, size);
}

static long set_xstate(long pid, const struct iovec *kept)
{
	struct iovec all = {.iov_base = whole, .iov_len = host_size};
	size_t size = kept->iov_len < host_size ? kept->iov_len : host_size;

	if (known == pid && same(whole, kept->iov_base, size))
		return 0;
	known = 0;
	if (kept->iov_len >= host_size) /* host_size is 0 before the first read */
		return syscall(SYS_ptrace, PTRACE_SETREGSET, pid, NT_X86_XSTATE, kept);
	memcpy(whole, kept->iov_base, kept->iov_len);
	memset(whole + kept->iov_len, 0, host_size - kept->iov_len);
	return syscall(SYS_ptrace, PTRACE_SETREGSET, pid, NT_X86_XSTATE, &all);
}

long ptrace(enum __ptrace_request request, ...)
{
	long pid, address, data, word, result;
	va_list rest;

	va_start(rest, request);
	pid = va_arg(rest, int);
	address = va_arg(rest, long);
	data = va_arg(rest, long);
	va_end(rest);

	switch ((int)request) {
	case PTRACE_TRACEME:
		/* The time stamp counter is the host's; programs.c reads it for the program. */
		if (brobust)
			prctl(PR_SET_TSC, PR_TSC_SIGSEGV);
		break;
	case PTRACE_PEEKTEXT:
	case PTRACE_PEEKDATA:
	case PTRACE_PEEKUSER: /* the system call writes the value that the C library returns */
		result = syscall(SYS_ptrace, request, pid, address, &word);
		if (result < 0)
			return result;
		errno = 0;
		return word;
	case PTRACE_SYSEMU:
	case PTRACE_SYSEMU_SINGLESTEP:
		if (brobust && brobust->programs)
			brobust_program_continues();
		known = 0;
		break;
	case PTRACE_CONT:
		known = 0;
		break;
	case PTRACE_SETOPTIONS:
		known = 0;
		/* A process of user space ends with its kernel, however the kernel ends. */
		if (brobust)
			data |= PTRACE_O_EXITKILL;
		break;
	case PTRACE_GETREGSET:
		if (address == NT_X86_XSTATE)
			return get_xstate(pid, (struct iovec *)data);
		break;
	case PTRACE_SETREGSET:
		if (address == NT_X86_XSTATE)
			return set_xstate(pid, (const struct iovec *)data);
		break;
	}
	return syscall(SYS_ptrace, request, pid, address, data);
}
