// SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause
/* BBR version 3: cc/bbr3.h. */
#include "../bbr3.h"

#define CC_NAME brb_bbr3
#define BBR bbr3
#include "../bbr_control.h"
#include "control.h"
