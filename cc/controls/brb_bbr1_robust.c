// SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause
/* BBR version 1 with the Inflight Deficit repair beside it: cc/robust.h. */
#include "../bbr1.h"
#include "../robust.h"

#define CC_NAME brb_bbr1_robust
#define BBR bbr1
#define POLICY robust
#include "../bbr_control.h"
#include "control.h"
