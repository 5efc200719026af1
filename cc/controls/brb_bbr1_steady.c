// SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause
/* BBR version 1 with its pacing schedule kept on average: cc/steady.h. */
#include "../bbr1.h"
#include "../steady.h"

#define CC_NAME brb_bbr1_steady
#define BBR bbr1
#define POLICY steady
#include "../bbr_control.h"
#include "control.h"
