/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The page below the vDSO, from which programs read the clock without a system call.
 *
 * A program computes in no time, so what the page says stays true until its next system call. But a
 * program may wait in a loop that only reads the clock, and would wait for ever: after so many
 * readings in a row the next one is a system call, in which time passes
 * (brobust_program_called()).
 */
#ifndef BROBUST_CLOCK_PAGE_H
#define BROBUST_CLOCK_PAGE_H

#define BROBUST_CLOCK_READINGS 32

struct brobust_clock_page {
	unsigned long real, monotonic; /* ns */
	unsigned int readings;	       /* so many are left */
};

/* For the vDSO: read the clock as seconds and a rest in units of so many ns. Return whether the
 * page has it. */
static inline int brobust_read_clock(int clock, void *seconds, void *rest, unsigned long unit)
{
	/* The vDSO is one page of code. */
	unsigned long here, time;
	volatile struct brobust_clock_page *page;

	asm("lea 0(%%rip), %0" : "=r"(here));
	page = (void *)((here & ~4095UL) - 4096);
	if ((clock != 0 && clock != 1) || !page->readings) /* CLOCK_REALTIME, CLOCK_MONOTONIC */
		return 0;
	page->readings--;
	time = clock ? page->monotonic : page->real;
	*(long *)seconds = time / 1000000000;
	*(long *)rest = time % 1000000000 / unit;
	return 1;
}

#endif
