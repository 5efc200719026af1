// SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause
/* BBR version 1 with each of its parts to be switched off or fixed: cc/master.h. */
#include "../master.h"

#define CC_NAME brb_bbr1_master
#define BBR master
#include "../bbr_control.h"
#include "control.h"
