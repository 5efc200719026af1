// SPDX-License-Identifier: GPL-2.0-only
/*
 * Programs of user space from the initial RAM disk: iperf3 in place of source and sink.
 *
 * There is no init. The kernel starts each program itself, as it starts modprobe, and gives it one
 * file for its three standard descriptors. What the program writes goes to the console, each piece
 * after a line with the program's number and the piece's length. When nobody has the file open any
 * more, the program has ended.
 */
#include <asm/delay.h>
#include <asm/unistd.h>
#include <linux/anon_inodes.h>
#include <linux/fdtable.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/kthread.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/uaccess.h>
#include <linux/umh.h>

#include "internal.h"

#define CLOCK_READS_IN_A_ROW 32

static void print(unsigned long number, const void *text, size_t size)
{
	char line[64];
	int length =
	    scnprintf(line, sizeof(line), "\nbrobust program %lu: %zu bytes\n", number, size);

	brobust_host_print(line, length);
	brobust_host_print(text, size);
}

static ssize_t output(struct file *file, const char __user *from, size_t size, loff_t *at)
{
	void *text;

	size = min_t(size_t, size, PAGE_SIZE);
	text = memdup_user(from, size);
	if (IS_ERR(text))
		return PTR_ERR(text);
	print((unsigned long)file->private_data, text, size);
	kfree(text);
	return size;
}

static int ended(struct inode *inode, struct file *file)
{
	brobust->running--;
	return 0;
}

static const struct file_operations operations = {
    .write = output,
    .release = ended,
};

/* Runs in the new process before it executes the program. */
static int give_descriptors(struct subprocess_info *info, struct cred *new)
{
	int number, error = 0;

	for (number = 0; number < 3 && error >= 0; number++)
		error = replace_fd(number, info->data, 0);
	return min(error, 0);
}

static int execute(char **command, struct file *file)
{
	static char *environment[] = {"PATH=/bin", "HOME=/", "TMPDIR=/tmp", NULL};
	struct subprocess_info *info;

	info = call_usermodehelper_setup(command[0], command, environment, GFP_KERNEL,
					 give_descriptors, NULL, file);
	return info ? call_usermodehelper_exec(info, UMH_WAIT_EXEC) : -ENOMEM;
}

static int run(void *argument)
{
	unsigned long number = (unsigned long)argument;
	struct brobust_program *program = &brobust->program[number];
	struct file *file = anon_inode_getfile("output", &operations, argument, O_WRONLY);
	char **command = argv_split(GFP_KERNEL, program->command, NULL);
	int error = -ENOMEM;
	char words[64];

	brobust_sleep_until(program->start);
	if (!IS_ERR(file) && command)
		error = execute(command, file);
	if (error) {
		scnprintf(words, sizeof(words), "cannot be started: error %d", -error);
		print(number, words, strlen(words));
	}
	if (command)
		argv_free(command);
	if (IS_ERR(file))
		brobust->running--;
	else
		fput(file);
	return 0;
}

/* A program may wait in a loop that reads the clock: iperf3's client calls select, which returns at
 * once, and reads the clock, until its server lets it begin. Where work takes no time, such a loop
 * would never end. So reading the clock takes a program 1 us, as on any CPU, and 20 us after many
 * reads in a row, since each costs the host about 10 us. The kernel's own reads take no time. */
void brobust_program_called(int syscall)
{
	static u8 reads[256];
	u8 *in_a_row = &reads[task_pid_nr(current) % ARRAY_SIZE(reads)];

	if (!brobust)
		return;
	if (syscall == __NR_clock_gettime) {
		*in_a_row = min(*in_a_row + 1, CLOCK_READS_IN_A_ROW);
		um_udelay(*in_a_row < CLOCK_READS_IN_A_ROW ? 1 : 20);
		schedule();
	} else if (syscall != __NR_pselect6) {
		*in_a_row = 0;
	}
}

int brobust_programs_start(void)
{
	unsigned long number;

	brobust->running = brobust->programs;
	for (number = 0; number < brobust->programs; number++)
		kthread_run(run, (void *)number, "program");
	return 0;
}
