// SPDX-License-Identifier: GPL-2.0-only
/*
 * The kernel's own words go to the console that the controller keeps: its last are what tells why a
 * run failed. UML's stderr console would have to be named on the command line, which the random
 * number generator is fed with; this one is enabled without.
 */
#include <linux/console.h>
#include <linux/init.h>

#include "net.h"

static void write(struct console *console, const char *text, unsigned int size)
{
	brobust_host_print(text, size);
}

static struct console console = {
    .name = "brobust",
    .write = write,
    .flags = CON_PRINTBUFFER | CON_ENABLED,
    .index = -1,
};

static int __init start(void)
{
	if (brobust)
		register_console(&console);
	return 0;
}
console_initcall(start);
