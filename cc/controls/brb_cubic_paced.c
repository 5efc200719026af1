// SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause
/*
 * CUBIC whose packets the stack paces, at its own rate or a fixed one: "Are Mobiles Ready for
 * BBR?", section 5.2.2.
 */

#define CC_NAME brb_cubic_paced
#define CUBIC_WANTS_PACING
#include "../cubic_control.h"
#include "control.h"
