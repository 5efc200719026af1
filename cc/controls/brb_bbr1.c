// SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause
/* BBR version 1, to compare with the kernel's: cc/bbr1.h. */
#include "../bbr1.h"

#define CC_NAME brb_bbr1
#define BBR bbr1
#include "../bbr_control.h"
#include "control.h"
