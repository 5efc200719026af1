// SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause
/* BBR version 1, each part of which can be switched off or fixed: cc/switchable.h. */
#include "../switchable.h"

#define CC_NAME brb_bbr1_master
#define BBR master
#include "../bbr_control.h"
#include "control.h"
