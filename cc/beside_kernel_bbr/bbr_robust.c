// SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause
/* The kernel's own BBR with the Inflight Deficit repair beside it, which cc/robust.h explains. */
#include "../robust.h"

#define CC_NAME bbr_robust
#define POLICY robust
#include "beside_kernel_bbr.h"
