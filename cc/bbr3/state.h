/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* BBR version 3: the state of a connection, and what one ACK adds to its sample. */
#ifndef BROBUST_CC_BBR3_STATE_H
#define BROBUST_CC_BBR3_STATE_H

#include "params.h"

/* Which part of a probe the incoming samples come from (BBR.ack_phase, section 5.3.3.9). */
enum bbr3_ack_phase {
	BBR3_ACKS_INIT,		  /* no probe */
	BBR3_ACKS_REFILLING,	  /* sent in REFILL */
	BBR3_ACKS_PROBE_STARTING, /* UP has begun, its packets are not back yet */
	BBR3_ACKS_PROBE_FEEDBACK, /* sent in UP */
	BBR3_ACKS_PROBE_STOPPING, /* UP is over, its packets still come back */
};

struct bbr3 {
	u64 cycle_us;	    /* µs: when this phase of PROBE_BW began */
	u64 aggregation_us; /* µs: when this epoch of ACK aggregation began */
	struct {
		u32 delivered; /* value of conn->delivered at a step */
		u32 lost;      /* value of conn->lost before it */
	} loss_steps[BBR3_LOSS_STEPS];
	u32 loss_step; /* index of the next step */
	u32 lost;      /* conn->lost at the last ACK */

	u32 bw_hi[2];			     /* maximum of the previous cycle and of this one */
	u32 bw_lo, inflight_hi, inflight_lo; /* bounds, or BBR3_UNSET */
	u32 bw_latest, inflight_latest;	     /* maximum of this round */
	u32 undo_bw_lo, undo_inflight_lo, undo_inflight_hi;
	u32 min_rtt_us, min_rtt_ticks;		   /* over 10 s */
	u32 probe_rtt_min_us, probe_rtt_min_ticks; /* over 5 s */
	u32 probe_rtt_ticks; /* jiffies: when PROBE_RTT may end; 0: too much is in flight */
	u32 round_delivered,
	    loss_round_delivered; /* a round ends with a packet sent at this count */
	u32 prior_cwnd, init_cwnd;
	u32 full_bw; /* the last bandwidth that was enough growth */
	u32 aggregation_acked;
	u32 probe_wait_us;
	u32 rounds_since_probe;
	u32 up_per_packet; /* in UP: packets acknowledged per packet of growth of inflight_hi */
	u32 up_acked;
	u16 extra_acked[2];
	u16 pacing_gain, cwnd_gain; /* << 8 */
	u8 mode;      /* enum cc_mode: STARTUP, DRAIN, PROBE_RTT and the four of PROBE_BW */
	u8 ack_phase; /* enum bbr3_ack_phase */
	u8 prev_ca_state;
	u8 up_rounds;
	u8 full_bw_rounds;
	u8 drain_rounds;
	u8 loss_events; /* ACKs with losses in this round */
	u8 extra_acked_age, extra_acked_half;
	bool round_start, loss_round_start;
	bool full_bw_now;     /* bandwidth no longer grows */
	bool full_bw_reached; /* it once stopped growing: STARTUP is over */
	bool loss_in_round;
	bool probe_samples; /* samples show the effect of a probe */
	bool prev_probe_too_high;
	bool stopped_risky_probe; /* UP ended on reaching inflight_hi, without any loss */
	bool probe_rtt_round_done;
	bool idle_restart;
	bool has_seen_rtt;
	bool at_target; /* cwnd has reached what the model wants, and no phase began since */
	bool is_told;	/* the stack tells of each lost packet (losses.h) */
};

/* What this ACK shows beyond its sample. */
struct bbr3_ack {
	u32 bw;		  /* of the sample; 0 without a sample */
	u32 lost;	  /* packets lost since the newest acknowledged one was sent */
	u32 tx_in_flight; /* packets in flight when that was sent, itself included; 0: unknown */
};

#endif
