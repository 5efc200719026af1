/* Ends with 0 if the FPU's registers of each thread are what they were before each kind of stop: a call, a call in which
 * other threads and processes run, a signal whose handler changes them, or replaces those that it returns to, a fork,
 * a page fault. Else with the number of the stop. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define ROUNDS 100

struct registers {
	unsigned char xmm[256];
	unsigned int mxcsr; /* how numbers are rounded */
};

#define OF_EACH(what)                                                                              \
	".irp i, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15\n" what ".endr\n"
#define LOAD "ldmxcsr 256(%[from])\n" OF_EACH("movdqu \\i * 16(%[from]), %%xmm\\i\n")
#define STORE OF_EACH("movdqu %%xmm\\i, \\i * 16(%[to])\n") "stmxcsr 256(%[to])\n"

/* Do `instruction` between loading the registers and storing them. */
#define ACROSS(instruction, from_, to_, nr, a, b, c)                                               \
	({                                                                                         \
		long result_ = nr;                                                                 \
		asm volatile(LOAD instruction STORE                                                \
			     : "+a"(result_)                                                       \
			     : "D"(a), "S"(b), "d"(c), [from] "r"(from_), [to] "r"(to_)            \
			     : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7",     \
			       "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14",        \
			       "xmm15", "rcx", "r11", "memory");                                   \
		result_;                                                                           \
	})

static struct registers made(unsigned char seed)
{
	struct registers of;

	memset(&of, 0, sizeof(of));
	for (int i = 0; i < 256; i++)
		of.xmm[i] = seed * 7 + i;
	of.mxcsr = 0x1f80 | (seed & 3) << 13;
	return of;
}

static int differ(const struct registers *one, const struct registers *other)
{
	return memcmp(one->xmm, other->xmm, 256) || (one->mxcsr ^ other->mxcsr) & 0x6000;
}

/* Make a call. Exit if the registers are others after it. */
static long call(int number, unsigned char seed, long nr, const void *a, const void *b,
		 const void *c)
{
	struct registers before = made(seed), after = {};
	long result = ACROSS("syscall\n", &before, &after, nr, a, b, c);

	if (differ(&before, &after))
		_exit(number);
	return result;
}

static void changes(int signal)
{
	struct registers mine = made(200 + signal), after = {};

	ACROSS("syscall\n", &mine, &after, SYS_getpid, 0, 0, 0);
}

/* The registers to which this returns get a value, as emulators do it. */
static void replaces(int signal, siginfo_t *info, void *context)
{
	changes(signal);
	memset(((ucontext_t *)context)->uc_mcontext.fpregs->_xmm, 0xa5, 256);
}

static void *sleeps(void *seed)
{
	const struct timespec time = {.tv_nsec = 1000 + 100 * (long)seed};

	for (int i = 0; i < ROUNDS; i++) {
		call(1, (long)seed + i, SYS_nanosleep, &time, 0, 0);
		call(2, (long)seed + i, SYS_sched_yield, 0, 0, 0);
	}
	return 0;
}

int main(void)
{
	const struct timespec time = {.tv_nsec = 30000};
	struct itimerval often = {.it_interval = {.tv_usec = 20}, .it_value = {.tv_usec = 20}},
			 never = {};
	struct sigaction replacing = {.sa_sigaction = replaces, .sa_flags = SA_SIGINFO};
	struct registers before = made(9), after = {}, wanted = made(9);
	long self = getpid();
	pthread_t thread[3];
	int status;

	for (long i = 0; i < 3; i++)
		pthread_create(&thread[i], 0, sleeps, (void *)(i * 50));
	sleeps((void *)170);
	for (int i = 0; i < 3; i++)
		pthread_join(thread[i], 0);

	signal(SIGUSR1, changes);
	signal(SIGALRM, changes);
	call(3, 1, SYS_kill, (void *)self, (void *)SIGUSR1, 0);
	setitimer(ITIMER_REAL, &often, 0);
	for (int i = 0; i < ROUNDS; i++)
		call(4, i, SYS_nanosleep, &time, 0, 0);
	setitimer(ITIMER_REAL, &never, 0);
	sigaction(SIGUSR2, &replacing, 0);
	ACROSS("syscall\n", &before, &after, SYS_kill, self, SIGUSR2, 0);
	memset(wanted.xmm, 0xa5, 256);
	if (differ(&wanted, &after))
		return 5;

	for (int i = 0; i < 5; i++) {
		long child = call(6, i, SYS_fork, 0, 0, 0);

		if (!child) {
			sleeps((void *)30);
			_exit(0);
		}
		call(7, i + 100, SYS_nanosleep, &time, 0, 0);
		call(8, i, SYS_wait4, (void *)child, &status, 0);
		if (status)
			return 9;
	}

	for (int i = 0; i < 20; i++) {
		char *page =
		    mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		before = made(i);
		ACROSS("movb $1, (%%rsi)\n", &before, &after, 0, 0, page, 0);
		if (differ(&before, &after))
			return 10;
	}
	return 0;
}
