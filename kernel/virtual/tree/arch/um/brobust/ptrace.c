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
 * UML reads and writes all registers at every stop of a program. But most stops are system calls, which
 * change nothing but the register of their result. So the state of the FPU stays in the process, and is
 * read only for those who need it: they call brobust_read_fpu(), or they let another thread of the
 * process go on. And of the other registers only the result's is written where no other has changed.
 * All this was a quarter of what a run of programs cost.
 */
#include <elf.h>
#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <unistd.h>

#include "brobust.h"

#ifndef NT_X86_XSTATE
#define NT_X86_XSTATE 0x202
#endif

/* Five times what the largest CPU has. The host would refuse the state of one that has more. */
static unsigned char whole[65536] __attribute__((aligned(8)));
static size_t host_size;
/* The process of which `whole` is the state: it has not run since that was read or written. 0: none. */
static long known;
/* A process that stopped as a program, before UML has read its FPU. 0: none. */
static long stopped;
/* What UML believes to have read: the state is still in the process `pid`. 0: none. */
static struct {
	long pid;
	struct iovec to;
} unread;
/* The registers of the process `of`, which has not run since they were read or written. 0: none. */
static struct {
	long of;
	struct user_regs_struct regs;
} held;

static long read_xstate(long pid, struct iovec *kept)
{
	struct iovec all = {.iov_base = whole, .iov_len = sizeof(whole)};

	if (known != pid) {
		long result = syscall(SYS_ptrace, PTRACE_GETREGSET, pid, NT_X86_XSTATE, &all);

		if (result < 0)
			return result;
		host_size = all.iov_len;
		known = pid;
	}
	if (kept->iov_len > host_size)
		kept->iov_len = host_size;
	memcpy(kept->iov_base, whole, kept->iov_len);
	return 0;
}

/* Read what UML believes to have read. A process that has been killed meanwhile needs it no more. */
void brobust_read_fpu(void)
{
	long pid = unread.pid;

	unread.pid = 0;
	if (pid)
		read_xstate(pid, &unread.to);
}

static long get_xstate(long pid, struct iovec *kept)
{
	if (stopped == pid) {
		stopped = 0;
		unread.pid = pid;
		unread.to = *kept;
		return 0;
	}
	brobust_read_fpu();
	return read_xstate(pid, kept);
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
	struct iovec all = {.iov_base = whole};
	size_t size;
	long result;

	if (unread.pid == pid && unread.to.iov_base == kept->iov_base) {
		unread.pid = 0;
		return 0;
	}
	brobust_read_fpu(); /* of another thread, which has stopped */
	size = kept->iov_len < host_size ? kept->iov_len : host_size;
	if (known == pid && same(whole, kept->iov_base, size))
		return 0;
	known = 0;
	if (!host_size) /* before the first read */
		return syscall(SYS_ptrace, PTRACE_SETREGSET, pid, NT_X86_XSTATE, kept);
	memcpy(whole, kept->iov_base, size);
	memset(whole + size, 0, host_size - size);
	all.iov_len = host_size;
	result = syscall(SYS_ptrace, PTRACE_SETREGSET, pid, NT_X86_XSTATE, &all);
	if (!result)
		known = pid;
	return result;
}

static long get_registers(long pid, struct user_regs_struct *to)
{
	long result = syscall(SYS_ptrace, PTRACE_GETREGS, pid, 0, to);

	held.of = result ? 0 : pid;
	held.regs = *to;
	return result;
}

static long set_registers(long pid, const struct user_regs_struct *from)
{
	size_t result_at = offsetof(struct user_regs_struct, rax);
	long result;

	/* Whether the process was in a system call matters to the host only where its result asks for
	 * that call again, -516 to -512 (include/linux/errno.h). */
	held.regs.orig_rax = from->orig_rax;
	if (held.of == pid && (from->rax < -516UL || from->rax > -512UL)) {
		unsigned long before = held.regs.rax;

		held.regs.rax = from->rax;
		if (same(&held.regs, from, sizeof(*from)))
			return before == from->rax ? 0
						   : syscall(SYS_ptrace, PTRACE_POKEUSER, pid,
							     result_at, from->rax);
	}
	result = syscall(SYS_ptrace, PTRACE_SETREGS, pid, 0, from);
	held.of = result ? 0 : pid;
	held.regs = *from;
	return result;
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
		stopped = brobust && brobust->programs ? pid : 0;
		unread.pid = known = held.of = 0;
		break;
	case PTRACE_CONT: /* into the stub, whose handler of a signal has another state of the FPU */
		if (unread.pid == pid)
			brobust_read_fpu();
		known = held.of = 0;
		break;
	case PTRACE_SETOPTIONS: /* a new process */
		known = held.of = 0;
		/* A process of user space ends with its kernel, however the kernel ends. */
		if (brobust)
			data |= PTRACE_O_EXITKILL;
		break;
	case PTRACE_GETREGS:
		return get_registers(pid, (struct user_regs_struct *)data);
	case PTRACE_SETREGS:
		return set_registers(pid, (const struct user_regs_struct *)data);
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
