// SPDX-License-Identifier: GPL-2.0-only
/*
 * Programs of user space from the initial RAM disk, in place of source and sink.
 *
 * There is no init. A thread for each program starts it, as the kernel starts modprobe, and waits
 * until it has ended. What the program writes to its standard output and error goes to the console,
 * each piece after a line with the program's number, the descriptor and the piece's length.
 */
#include <asm/delay.h>
#include <asm/unistd.h>
#include <linux/anon_inodes.h>
#include <linux/fdtable.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/fs_struct.h>
#include <linux/init_syscalls.h>
#include <linux/initrd.h>
#include <linux/binfmts.h>
#include <linux/kthread.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/sched/stat.h>
#include <linux/sched/task.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/uaccess.h>
#include <linux/version.h>
#include <net/tcp.h>

#include "clock_page.h"
#include "internal.h"

#if LINUX_VERSION_CODE < KERNEL_VERSION(5, 19, 0)
#define user_mode_thread kernel_thread
#endif

/* So many calls of a task in a row that bring it nothing are polling. */
#define CALLS_OF_POLLING 32
#define MAX_WORDS 512

/* A program of this kernel, and what its process is started with. */
struct program {
	struct brobust_program *shared;
	unsigned long number;
	struct file *files[3];
	char *argv[MAX_WORDS + 1], *envp[MAX_WORDS + 1];
	u64 written;
};

static void stop_run(const char *name, const char *what)
{
	snprintf(brobust->words, sizeof(brobust->words), "%s %s", name, what);
	brobust_sync(BROBUST_STOPPED);
}

static void print(unsigned long number, int descriptor, const void *text, size_t size)
{
	char line[80];
	int length = scnprintf(line, sizeof(line), "\nbrobust program %lu output %d: %zu bytes\n",
			       number, descriptor, size);

	brobust_host_print(line, length);
	brobust_host_print(text, size);
}

static ssize_t output(struct file *file, const char __user *from, size_t size, loff_t *at)
{
	struct program *program = file->private_data;
	void *text;

	size = min_t(size_t, size, PAGE_SIZE);
	program->written += size;
	if (program->written > BROBUST_OUTPUT_BYTES)
		stop_run(program->shared->words, "has written more than 16 MiB to its standard "
						 "output and error");
	text = memdup_user(from, size);
	if (IS_ERR(text))
		return PTR_ERR(text);
	print(program->number, file == program->files[2] ? 2 : 1, text, size);
	kfree(text);
	return size;
}

static const struct file_operations operations = {
    .write = output,
};

/* Runs in the new process, which then executes the program. What is here beside it is what
 * kernel/umh.c does to a process that comes from a thread of the kernel. */
static int become_program(void *argument)
{
	struct program *program = argument;
	int number, error = 0;

	spin_lock_irq(&current->sighand->siglock);
	flush_signal_handlers(current, 1);
	spin_unlock_irq(&current->sighand->siglock);
	current->fs->umask = 0022;
	for (number = 0; number < 3 && error >= 0; number++)
		error = replace_fd(number, program->files[number], 0);
	if (error >= 0)
		error = kernel_execve(program->argv[0], (const char *const *)program->argv,
				      (const char *const *)program->envp);
	if (!error)
		return 0;
	program->shared->error = -error;
	do_exit(0);
}

static int open_files(struct program *program)
{
	int number;

	program->files[0] = filp_open("/dev/null", O_RDONLY, 0);
	program->files[1] = anon_inode_getfile("output", &operations, program, O_WRONLY);
	program->files[2] = anon_inode_getfile("errors", &operations, program, O_WRONLY);
	for (number = 0; number < 3; number++)
		if (IS_ERR(program->files[number]))
			return PTR_ERR(program->files[number]);
	return 0;
}

/* Point to the words of arguments and environment. */
static int find_words(struct program *program)
{
	struct brobust_program *shared = program->shared;
	char *at = shared->words, *end = at + sizeof(shared->words);
	u32 i;

	if (!shared->arguments || shared->arguments > MAX_WORDS || shared->variables > MAX_WORDS)
		return -E2BIG;
	for (i = 0; i < shared->arguments + shared->variables; i++) {
		char *next = memchr(at, 0, end - at);

		if (!next)
			return -E2BIG;
		if (i < shared->arguments)
			program->argv[i] = at;
		else
			program->envp[i - shared->arguments] = at;
		at = next + 1;
	}
	return 0;
}

static int run(void *argument)
{
	struct program *program = argument;
	int error, status = 0;
	pid_t pid;

	brobust_sleep_until(program->shared->start);
	error = find_words(program) ?: open_files(program);
	if (!error) {
		/* A thread of the kernel ignores SIGCHLD, and would not learn how its child ended. */
		kernel_sigaction(SIGCHLD, SIG_DFL);
		pid = user_mode_thread(become_program, program, SIGCHLD);
		if (pid < 0)
			error = pid;
		else
			kernel_wait(pid, &status);
	}
	if (error)
		program->shared->error = -error;
	program->shared->status = status;
	program->shared->ended = brobust_now();
	brobust->running--;
	return 0;
}

static bool is_reading_of_clock(int syscall)
{
	return syscall == __NR_clock_gettime || syscall == __NR_gettimeofday ||
	       syscall == __NR_time || syscall == __NR_sched_yield;
}

static bool is_wait(int syscall)
{
	return syscall == __NR_select || syscall == __NR_pselect6 || syscall == __NR_poll ||
	       syscall == __NR_ppoll || syscall == __NR_epoll_wait || syscall == __NR_epoll_pwait ||
	       syscall == __NR_epoll_pwait2;
}

/* Let CPU time pass, with all that falls due in it. */
static void spend(u64 ns)
{
	brobust->charged += ns;
	um_ndelay(ns);
}

/* Whether a call reads or replaces the registers of its task, other than its result, or ends the task. What a
 * debugger does with them belongs to it. */
static bool is_of_registers(int syscall)
{
	return syscall == __NR_clone || syscall == __NR_clone3 || syscall == __NR_fork ||
	       syscall == __NR_vfork || syscall == __NR_execve || syscall == __NR_execveat ||
	       syscall == __NR_rt_sigreturn || syscall == __NR_exit || syscall == __NR_exit_group ||
	       current->ptrace;
}

/* A program begins a call. Return when. */
unsigned long long brobust_program_calls(void)
{
	if (is_of_registers(current_pt_regs()->regs.gp[HOST_ORIG_AX]))
		brobust_read_fpu();
	return brobust ? brobust_now() : 0;
}

static void record_call(int syscall, long result, u64 begun)
{
	struct brobust_program_call call = {
	    .begin = begun,
	    .end = brobust_now(),
	    .result = result,
	    .process = task_tgid_nr(current),
	    .thread = task_pid_nr(current),
	    .number = syscall,
	};

	get_task_comm(call.name, current);
	brobust_host_record_program_call(&call);
}

/* A program may wait in a loop that looks again and again whether something has happened. Where
 * work takes no time, such a loop would never end. So each call of a program takes time, and more if
 * it polls: many calls in a row have brought it nothing, and no time passed but theirs. Each call
 * costs the host some 10 us, so this also bounds what polling costs there. */
void brobust_program_called(int syscall, long result, unsigned long long begun)
{
	static struct {
		u64 until; /* end of the task's latest call */
		u8 in_vain;
	} tasks[256];
	bool in_vain = is_reading_of_clock(syscall) || (result < 0 && result >= -MAX_ERRNO) ||
		       (is_wait(syscall) && !result);
	typeof(tasks[0]) *task = &tasks[task_pid_nr(current) % ARRAY_SIZE(tasks)];
	u64 now = brobust_now();

	if (!brobust || !brobust->programs)
		return;
	if (nr_threads > BROBUST_TASKS)
		stop_run(current->comm, "and others are more than 2048 processes and threads");
	/* Clock and waiting belong together: neither ends a row, unless the wait took time. */
	if (now > task->until + 2 * brobust->poll_cost || !(in_vain || is_wait(syscall)))
		task->in_vain = 0;
	if (in_vain && task->in_vain < CALLS_OF_POLLING)
		task->in_vain++;
	if ((syscall == __NR_accept || syscall == __NR_accept4) && result >= 0)
		brobust_accepted(result);
	spend(task->in_vain < CALLS_OF_POLLING ? brobust->call_cost : brobust->poll_cost);
	if (brobust_host_records_program_calls() && begun)
		record_call(syscall, result, begun);
	if (in_vain)
		schedule();
	task->until = brobust_now();
}

/* Read the time stamp counter for a program, whose processes may not do so (ptrace.c): it counts
 * nanoseconds of virtual time. Return whether it was that. */
bool brobust_read_tsc(struct pt_regs *regs)
{
	u8 code[3] = {};
	u64 now;
	int size;

	if (!brobust || copy_from_user(code, (void __user *)PT_REGS_IP(regs), 2))
		return false;
	if (code[0] == 0x0f && code[1] == 0x31) { /* rdtsc */
		size = 2;
	} else if (code[0] == 0x0f && code[1] == 0x01 &&
		   !copy_from_user(code, (void __user *)PT_REGS_IP(regs), 3) && code[2] == 0xf9) {
		size = 3; /* rdtscp, on CPU 0 */
		PT_REGS_CX(regs) = 0;
	} else {
		return false;
	}
	now = brobust_now();
	PT_REGS_AX(regs) = (u32)now;
	PT_REGS_DX(regs) = now >> 32;
	PT_REGS_IP(regs) += size;
	brobust_program_called(__NR_clock_gettime, 0, 0); /* which is no call, and not recorded */
	return true;
}

/* What programs read the clock from; one for all of them, since only one runs at a time. */
static struct page *clock_page[2];

/* Called by vma.c for every new program. All processes write to the same page: how many readings
 * are left. A program that does not get it ends when it reads the clock. The page is not there before
 * a program is: one page less changes what packets kernels without programs send. */
void brobust_map_clock_page(struct mm_struct *mm)
{
	static const struct vm_special_mapping mapping = {
	    .name = "[clock]",
	    .pages = clock_page,
	};

	if (!clock_page[0])
		clock_page[0] = alloc_page(GFP_KERNEL | __GFP_ZERO);
	if (clock_page[0])
		_install_special_mapping(mm, um_vdso_addr - PAGE_SIZE, PAGE_SIZE,
					 VM_READ | VM_WRITE | VM_SHARED | VM_MAYREAD | VM_MAYWRITE |
					     VM_MAYSHARE,
					 &mapping);
}

/* A program goes on after it was in the kernel. */
void brobust_program_continues(void)
{
	struct brobust_clock_page *page;

	if (!clock_page[0]) /* UML tries ptrace() out before it boots */
		return;
	page = page_address(clock_page[0]);
	page->monotonic = ktime_get_ns();
	page->real = ktime_get_real_ns();
	page->readings = BROBUST_CLOCK_READINGS;
}

/* Programs expect what any Linux has in these places. */
static int __init mount_filesystems(void)
{
	int error;

	wait_for_initramfs();
	error = init_mount("proc", "/proc", "proc", 0, NULL);
	return error ?: init_mount("sysfs", "/sys", "sysfs", 0, NULL);
}

int __init brobust_programs_start(void)
{
	unsigned long number;
	int error = mount_filesystems();

	if (error)
		return error;
	/* Processes whose parents have ended are this one's children. Nobody else waits for them. */
	kernel_sigaction(SIGCHLD, SIG_IGN);
	/* What a TCP socket has that does not ask for another. Programs may have congestion controls
	 * of their own, which the kernel does not know. */
	for (number = 0; number < brobust->flows; number++)
		if (brobust->flow[number].used) {
			tcp_set_default_congestion_control(&init_net, brobust->flow[number].cc);
			break;
		}
	brobust->running = brobust->programs;
	for (number = 0; number < brobust->programs; number++) {
		struct program *program = kzalloc(sizeof(*program), GFP_KERNEL);

		if (!program)
			return -ENOMEM;
		program->shared = &brobust->program[number];
		program->number = number;
		kthread_run(run, program, "program");
	}
	return 0;
}
