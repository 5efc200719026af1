// SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause
/* BBR version 2: cc/bbr2.h. It is version 3 with other values, so the functions are bbr3_...(). */
#include "../bbr2.h"

#define CC_NAME brb_bbr2
#define BBR bbr3
#include "../bbr_control.h"
#include "control.h"
