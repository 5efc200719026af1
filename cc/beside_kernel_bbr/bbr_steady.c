// SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause
/* The kernel's own BBR with its pacing schedule kept on average, which cc/steady.h explains. */
#include "../steady.h"

#define CC_NAME bbr_steady
#define POLICY steady
#include "beside_kernel_bbr.h"
