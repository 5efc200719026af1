// SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause
/* BBR version 1 with the repair of Ha et al. beside it, as a baseline: cc/share_compensation.h. */
#include "../bbr1.h"
#include "../share_compensation.h"

#define CC_NAME brb_bbr1_ha
#define BBR bbr1
#define POLICY ha
#include "../bbr_control.h"
#include "control.h"
