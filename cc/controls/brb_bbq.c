// SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause
/* BBQ, BBR version 1 without its bias against short round-trip times: cc/bbq.h. */
#include "../bbq.h"

#define CC_NAME brb_bbq
#define BBR bbq
#include "../bbr_control.h"
#include "control.h"
