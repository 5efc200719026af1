// SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause
/* BBR version 3 with the values of draft-ietf-ccwg-bbr where they differ from google's code. */
#define BBR3_DRAIN_GAIN 128
#define BBR3_DRAIN_ROUNDS 3
#define BBR3_DOWN_GAIN 230
#define BBR3_GROWTH_EACH_ACK 0
#define BBR3_FAST_PATH 0
#include "../bbr3.h"

#define CC_NAME brb_bbr3_draft
#define BBR bbr3
#include "../bbr_control.h"
#include "control.h"
