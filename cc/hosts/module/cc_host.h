/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* What cc/cc.h needs of its host, for a kernel module. */
#ifndef BROBUST_CC_HOST_H
#define BROBUST_CC_HOST_H

#include <linux/module.h>
#include <linux/random.h>
#include <linux/stringify.h>
#include <linux/types.h>
#include <linux/version.h>

#define CC_RANGE(unit, minimum, maximum)                                                           \
	" [" #unit ", " __stringify(minimum) " to " __stringify(maximum) "]"

/* Set on the kernel command line (NAME.PARAMETER=VALUE) or by modprobe; shown in /sys/module. */
#define CC_PARAM(name, value, minimum, maximum, unit, help)                                        \
	static u32 name __read_mostly = value;                                                     \
	module_param(name, uint, 0444);                                                            \
	MODULE_PARM_DESC(name, help CC_RANGE(unit, minimum, maximum));

#endif
