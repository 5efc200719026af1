/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/*
 * BBR, version 2 (google's v2alpha): version 3 with other constants, and
 *	- PROBE_BW_UP ends with 1.25 BDP in flight after a minimum RTT, which is often too early;
 *	- STARTUP ends after three rounds in which the *maximum* bandwidth grew by less than a
 *	  quarter, seen at the first ACK of a round, and never again;
 *	- a burst is one packet below 1.2 Mbit/s;
 *	- and, without a parameter of their own (BBR3_IS_VERSION_2): where losses end STARTUP,
 *	  inflight_hi is the BDP, even if more was delivered; the latest delivery of the next round
 *	  begins before the phases are looked at, and is not kept over an ACK of the fast path; an RTT
 *	  equal to the minimum refreshes it; credit for inflight_hi is lost where the window is not
 *	  full; a timeout keeps the count of rounds without growth; bw_lo may be 0; what a tail loss
 *	  probe repairs is no loss.
 */
#ifndef BROBUST_CC_BBR2_H
#define BROBUST_CC_BBR2_H

#define BBR_MIN_TSO_RATE 1200000
#define BBR3_STARTUP_PACING_GAIN 739
#define BBR3_STARTUP_CWND_GAIN 739
#define BBR3_DOWN_GAIN 192
#define BBR3_UP_CWND_GAIN 512
#define BBR3_STARTUP_LOSSES 8
#define BBR3_UP_UNTIL_PLATEAU 0
#define BBR3_GROWTH_EACH_ACK 0
#define BBR3_IS_VERSION_2 1

#include "bbr3.h"

#endif
