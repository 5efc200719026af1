// SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause
/* BBR version 3 with its pacing schedule kept on average: cc/steady.h. */
#include "../bbr3.h"
#define STEADY_RECALL 500 /* ms */
#include "../steady.h"

#define CC_NAME brb_bbr3_steady
#define BBR bbr3
#define POLICY steady
#include "../bbr_control.h"
#include "control.h"
