// SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause
/* CUBIC whose packets the stack paces: papers/003, section 5.2.2. */

#define CC_NAME brb_cubic_paced
#define CUBIC_WANTS_PACING
#include "../cubic_control.h"
#include "control.h"
