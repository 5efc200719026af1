// SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause
/* BBR version 2 with the repair as the paper has it, to be compared with ours: cc/robust.h. */
#define ROBUST_AS_IN_PAPER 1
#include "../bbr2.h"
#include "../robust.h"

#define CC_NAME brb_bbr2_paper
#define BBR bbr3
#define POLICY robust
#include "../bbr_control.h"
#include "control.h"
