// SPDX-License-Identifier: GPL-2.0-only
/*
 * The kernel's messages go to the console that the controller keeps: the last ones tell why a run
 * failed. UML's stderr console would have to be named on the command line, which seeds the random
 * number generator; this console is enabled without that.
 */
#include <linux/console.h>
#include <linux/init.h>

#include "internal.h"

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
