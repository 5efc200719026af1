// SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause
/* CUBIC, to compare with the kernel's: cc/cubic.h. */

#define CC_NAME brb_cubic
#include "../cubic_control.h"
#include "control.h"
