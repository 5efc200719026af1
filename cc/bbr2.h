/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/*
 * BBR, version 2 (google's v2alpha): version 3 with other constants, and
 *	- PROBE_BW_UP ends with 1.25 BDP in flight after a minimum RTT, which is often too early;
 *	- the check whether bandwidth grows happens once a round;
 *	- where losses end STARTUP, inflight_hi is the BDP, even if more was delivered;
 *	- the latest delivery of the next round begins before the model is updated.
 */
#ifndef BROBUST_CC_BBR2_H
#define BROBUST_CC_BBR2_H

#define BBR3_STARTUP_PACING_GAIN 739
#define BBR3_STARTUP_CWND_GAIN 739
#define BBR3_DOWN_GAIN 192
#define BBR3_UP_CWND_GAIN 512
#define BBR3_STARTUP_LOSSES 8
#define BBR3_UP_UNTIL_PLATEAU 0
#define BBR3_GROWTH_EACH_ACK 0
#define BBR3_STARTUP_KEEPS_INFLIGHT 0
#define BBR3_LATEST_AT_END 0

#include "bbr3.h"

#endif
