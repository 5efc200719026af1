// SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause
/* BBR version 1 with the repair as the paper has it, to be compared with ours: cc/robust.h. */
#define ROBUST_AS_IN_PAPER 1
#include "../bbr1.h"
#include "../robust.h"

#define CC_NAME brb_bbr1_paper
#define BBR bbr1
#define POLICY robust
#include "../bbr_control.h"
#include "control.h"
