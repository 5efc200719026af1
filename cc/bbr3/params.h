/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* BBR version 3: its constants, each a parameter where it can be one. */
#ifndef BROBUST_CC_BBR3_PARAMS_H
#define BROBUST_CC_BBR3_PARAMS_H

#ifndef BBR_MIN_TSO_RATE
#define BBR_MIN_TSO_RATE 0 /* a burst has two packets at least, at any rate */
#endif
#include "../bbr.h"

#define BBR3_UNSET (~0U) /* a bound that is not known */
#define BBR3_LOSS_STEPS 16U
#define BBR3_MAX_ROUNDS_SINCE_PROBE 255U
#define BBR3_MAX_UP_ROUNDS 30U
#define BBR3_TSO_RTT_SHIFT 9

/* Version 2 and the draft have other values here: bbr2.h and brb_bbr3_draft.c define them first. */
#ifndef BBR3_STARTUP_PACING_GAIN
#define BBR3_STARTUP_PACING_GAIN 710
#endif
#ifndef BBR3_STARTUP_CWND_GAIN
#define BBR3_STARTUP_CWND_GAIN 512
#endif
#ifndef BBR3_DRAIN_GAIN
#define BBR3_DRAIN_GAIN 88
#endif
#ifndef BBR3_DRAIN_ROUNDS
#define BBR3_DRAIN_ROUNDS 0
#endif
#ifndef BBR3_DOWN_GAIN
#define BBR3_DOWN_GAIN 232
#endif
#ifndef BBR3_UP_CWND_GAIN
#define BBR3_UP_CWND_GAIN 576
#endif
#ifndef BBR3_STARTUP_LOSSES
#define BBR3_STARTUP_LOSSES 6
#endif
#ifndef BBR3_UP_UNTIL_PLATEAU
#define BBR3_UP_UNTIL_PLATEAU 1
#endif
#ifndef BBR3_GROWTH_EACH_ACK
#define BBR3_GROWTH_EACH_ACK 1
#endif
#ifndef BBR3_FAST_PATH
#define BBR3_FAST_PATH 1
#endif
/* Rules of version 2 that are not worth a parameter: bbr2.h lists them. */
#ifndef BBR3_IS_VERSION_2
#define BBR3_IS_VERSION_2 0
#endif

CC_PARAM(bbr3_startup_pacing_gain, BBR3_STARTUP_PACING_GAIN, 257, BBR_MAX_GAIN, CC_GAIN,
	 "pacing gain in STARTUP: 4 ln 2")
CC_PARAM(bbr3_startup_cwnd_gain, BBR3_STARTUP_CWND_GAIN, 257, BBR_MAX_GAIN, CC_GAIN,
	 "cwnd gain in STARTUP and DRAIN")
CC_PARAM(bbr3_drain_gain, BBR3_DRAIN_GAIN, 1, 255, CC_GAIN, "pacing gain in DRAIN")
CC_PARAM(bbr3_drain_rounds, BBR3_DRAIN_ROUNDS, 0, 100, CC_ROUNDS,
	 "maximum length of DRAIN; 0: no limit")
CC_PARAM(bbr3_up_gain, 320, 257, BBR_MAX_GAIN, CC_GAIN, "pacing gain in PROBE_BW_UP")
CC_PARAM(bbr3_down_gain, BBR3_DOWN_GAIN, 1, 256, CC_GAIN, "pacing gain in PROBE_BW_DOWN")
CC_PARAM(bbr3_cwnd_gain, 512, 256, BBR_MAX_GAIN, CC_GAIN, "cwnd gain in PROBE_BW")
CC_PARAM(bbr3_up_cwnd_gain, BBR3_UP_CWND_GAIN, 256, BBR_MAX_GAIN, CC_GAIN,
	 "cwnd gain in PROBE_BW_UP")
CC_PARAM(bbr3_min_cwnd, 4, 1, 1000, CC_PACKETS, "minimum cwnd")
CC_PARAM(bbr3_loss_threshold, 5, 1, 128, CC_GAIN, "share of packets lost that is too much: 2 %")
CC_PARAM(bbr3_beta, 76, 1, 255, CC_GAIN, "part that a loss cuts off a bound: 30 %")
CC_PARAM(bbr3_headroom, 38, 0, 255, CC_GAIN, "part of inflight_hi left to other flows: 15 %")
CC_PARAM(bbr3_startup_losses, BBR3_STARTUP_LOSSES, 0, 15, CC_TIMES,
	 "ACKs with losses in a round that end STARTUP; 0: losses never do")
CC_PARAM(bbr3_full_bw_growth, 320, 257, BBR_MAX_GAIN, CC_GAIN,
	 "growth in a round that keeps STARTUP going")
CC_PARAM(bbr3_full_bw_rounds, 3, 1, 15, CC_ROUNDS, "rounds without such growth: the pipe is full")
CC_PARAM(bbr3_probe_base, 2000000, 0, 60000000, CC_MICROSECONDS, "minimum time between probes")
CC_PARAM(bbr3_probe_random, 1000000, 1, 60000000, CC_MICROSECONDS,
	 "maximum of the random time on top of it")
#if BBR3_IS_VERSION_2
/* A variable, as in v2alpha: the kernel draws from a constant range with other random bytes. */
CC_PARAM(bbr3_probe_random_rounds, 2, 1, 15, CC_ROUNDS,
	 "maximum of the random rounds that count as waited for already")
#else
#define bbr3_probe_random_rounds 2
#endif
CC_PARAM(bbr3_probe_rounds, 63, 1, 255, CC_ROUNDS, "maximum number of rounds between probes")
CC_PARAM(bbr3_min_rtt_window, 10, 1, 3600, CC_SECONDS, "window of the minimum RTT")
CC_PARAM(bbr3_probe_rtt_interval, 5000, 1, 3600000, CC_MILLISECONDS,
	 "time without a new minimum RTT before PROBE_RTT")
CC_PARAM(bbr3_probe_rtt, 200, 0, 10000, CC_MILLISECONDS, "length of PROBE_RTT; 0: no PROBE_RTT")
CC_PARAM(bbr3_probe_rtt_cwnd_gain, 128, 1, 256, CC_GAIN, "cwnd gain in PROBE_RTT")
CC_PARAM(bbr3_extra_acked_gain, 256, 0, BBR_MAX_GAIN, CC_GAIN,
	 "gain of the extra cwnd for aggregated ACKs")
CC_PARAM(bbr3_extra_acked_rounds, 5, 1, 31, CC_ROUNDS, "half of the window of aggregation")
CC_PARAM(bbr3_extra_acked_time, 100000, 0, 10000000, CC_MICROSECONDS,
	 "maximum of the extra cwnd, as time at the bandwidth")
CC_PARAM(bbr3_up_until_plateau, BBR3_UP_UNTIL_PLATEAU, 0, 1, CC_SWITCH,
	 "PROBE_BW_UP ends when bandwidth no longer grows; off: with 1.25 BDP in flight")
CC_PARAM(bbr3_growth_each_ack, BBR3_GROWTH_EACH_ACK, 0, 1, CC_SWITCH,
	 "look for growth at every ACK; off: once a round")
CC_PARAM(bbr3_fast_path, BBR3_FAST_PATH, 0, 1, CC_SWITCH,
	 "an application-limited ACK that shows nothing new changes nothing")
CC_PARAM(bbr3_stack_signals, 1, 0, 1, CC_SWITCH,
	 "where the stack tells of each lost packet, listen; off: derive it as elsewhere")

#endif
