// SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause
/* BBR version 3 with the Inflight Deficit repair beside it: cc/robust.h. */
#include "../bbr3.h"
#include "../robust.h"

#define CC_NAME brb_bbr3_robust
#define BBR bbr3
#define POLICY robust
#include "../bbr_control.h"
#include "control.h"
