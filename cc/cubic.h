/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/*
 * CUBIC (RFC 9438) as Linux has it (net/ipv4/tcp_cubic.c). After a loss the window comes back to
 * its earlier value along W(t) = C (t - K)^3 + Wmax, flat around Wmax, whatever the RTT; it is
 * never slower than Reno (the Reno-friendly region); with fast convergence; and with HyStart, which
 * ends slow start before it loses packets.
 *
 * Where Linux differs from the RFC: time is in jiffies, and is read again after at most HZ/32
 * jiffies while cwnd stays; before the first loss the window grows by at least one in twenty (5 %
 * per RTT); the slope does not go back to 1 once the Reno-friendly window has passed the previous
 * Wmax (section 4.3).
 */
#ifndef BROBUST_CC_CUBIC_H
#define BROBUST_CC_CUBIC_H

#include "window.h"

#define CUBIC_SCALE 1024U	/* beta and C are multiplied by it */
#define CUBIC_TIME_SHIFT 10	/* time is in s << this */
#define CUBIC_SLOWEST_FIRST 20U /* maximum of ACKed packets per packet of growth, before a loss */
#define CUBIC_FASTEST 2U	/* minimum of them: the window grows to 1.5 times per RTT */

#define HYSTART_SAMPLES 8U
#define HYSTART_MIN_RISE_US 4000U
#define HYSTART_MAX_RISE_US 16000U
#define HYSTART_MAX_ACK_DELAY_US 1000U

CC_PARAM(cubic_beta, 717, 1, 1023, CC_PER_1024, "part of the window that is left after a loss")
CC_PARAM(cubic_c, 410, 10, 4096, CC_PER_1024, "steepness of the curve, packets/s^3")
CC_PARAM(cubic_fast_convergence, 1, 0, 1, CC_SWITCH, "give way when the window shrinks twice")
CC_PARAM(cubic_reno_friendly, 1, 0, 1, CC_SWITCH, "never slower than Reno")
CC_PARAM(hystart, 1, 0, 1, CC_SWITCH, "leave slow start before it loses packets")
CC_PARAM(hystart_ack_train, 1, 0, 1, CC_SWITCH, "leave it by the length of a train of ACKs")
CC_PARAM(hystart_delay, 1, 0, 1, CC_SWITCH, "leave it by the rise of the RTT")
CC_PARAM(hystart_low_window, 16, 2, 1000, CC_PACKETS, "HyStart does nothing below this window")
CC_PARAM(hystart_ack_gap, 2000, 1, 100000, CC_MICROSECONDS, "ACKs closer than this are a train")

struct cubic {
	u32 per_packet;	 /* packets acknowledged per packet of growth */
	u32 max;	 /* Wmax, packets: the window at the last loss */
	u32 last_cwnd;	 /* packets: cwnd when per_packet was computed */
	u32 last_ticks;	 /* jiffies: when that was */
	u32 origin;	 /* packets: where the curve is flat */
	u32 k;		 /* s << 10: time from the epoch to that point */
	u32 min_rtt_us;	 /* µs; 0: none yet */
	u32 epoch_ticks; /* jiffies: when the curve began; 0: not yet */
	u32 acked;	 /* packets, towards the Reno-friendly window */
	u32 reno_cwnd;	 /* packets: the window that Reno would have */

	u32 round_us;	  /* µs, wrapping: when HyStart's round began */
	u32 train_us;	  /* µs, wrapping: last ACK of the train */
	u32 round_end;	  /* sequence number that ends the round */
	u32 round_rtt_us; /* minimum RTT of the round */
	u8 samples;
	bool found; /* HyStart has ended slow start */
};

/* Cube roots of the numbers up to 63, in 1/64 and biased, as refined by hand for tcp_cubic.c. */
static const u8 cubic_roots[64] = {
    0,	 54,  54,  54,	118, 118, 118, 118, 123, 129, 134, 138, 143, 147, 151, 156,
    157, 161, 164, 168, 170, 173, 176, 179, 181, 185, 187, 190, 192, 194, 197, 199,
    200, 202, 204, 206, 209, 211, 213, 215, 217, 219, 221, 222, 224, 225, 227, 229,
    231, 232, 234, 236, 237, 239, 240, 242, 244, 245, 246, 248, 250, 251, 252, 254,
};

/*
 * Return the cube root: that of the top bits from the table, then one step of Newton's method. The
 * mean error is 0.2 %. A better root would give another K, and so another window than the kernel's.
 */
static u32 cubic_root(u64 a)
{
	u32 shift, x;

	if (a < 64)
		return (cubic_roots[a] + 35U) >> 6;
	shift = (cc_bits(a) * 84 >> 8) - 1; /* a third of the bits, less 1 */
	x = ((cubic_roots[a >> shift * 3 & 63] + 10U) << shift) >> 6;
	x = 2 * x + (u32)(a / ((u64)x * (x - 1)));
	return x * 341 >> 10; /* a third */
}

/* --- HyStart (Ha, Rhee, "Taming the elephants", 2011) ----------------------------------------- */

static void cubic_begin_round(const struct cc_connection *conn, struct cubic *cubic)
{
	cubic->round_us = cubic->train_us = (u32)conn->now_us;
	cubic->round_end = conn->snd_nxt;
	cubic->round_rtt_us = ~0U;
	cubic->samples = 0;
}

/* Return how long bursts of segmentation offload delay ACKs: four bursts at the current rate. */
CC_INLINE u32 cubic_ack_delay_us(const struct cc_connection *conn)
{
	if (!conn->pacing_rate)
		return 0;
	return (u32)cc_min64(HYSTART_MAX_ACK_DELAY_US,
			     (u64)conn->gso_max_size * 4 * CC_USEC_PER_SEC / conn->pacing_rate);
}

static void cubic_leave_slow_start(struct cc_connection *conn, struct cubic *cubic)
{
	cubic->found = true;
	conn->ssthresh = conn->cwnd;
}

static void cubic_hystart(struct cc_connection *conn, u32 rtt_us, struct cubic *cubic)
{
	u32 now = (u32)conn->now_us;

	if (cc_after(conn->snd_una, cubic->round_end))
		cubic_begin_round(conn, cubic);
	if (conn->cwnd < hystart_low_window)
		return;

	/* A train of ACKs as long as half the RTT, or as the RTT where pacing spreads packets. */
	if (hystart_ack_train && (s32)(now - cubic->train_us) <= (s32)hystart_ack_gap) {
		u32 max = cubic->min_rtt_us + cubic_ack_delay_us(conn);

		cubic->train_us = now;
		if (!conn->is_paced)
			max >>= 1;
		if (now - cubic->round_us > max)
			cubic_leave_slow_start(conn, cubic);
	}
	/* The first RTTs of a round are its smallest: if they rise, a queue stands. */
	if (hystart_delay) {
		u32 rise = cubic->min_rtt_us >> 3;

		rise = cc_min(cc_max(rise, HYSTART_MIN_RISE_US), HYSTART_MAX_RISE_US);
		cubic->round_rtt_us = cc_min(cubic->round_rtt_us, rtt_us);
		if (cubic->samples < HYSTART_SAMPLES)
			cubic->samples++;
		else if (cubic->round_rtt_us > cubic->min_rtt_us + rise)
			cubic_leave_slow_start(conn, cubic);
	}
}

/* --- the curve ------------------------------------------------------------------------------- */

static void cubic_begin_epoch(const struct cc_connection *conn, u32 acked, struct cubic *cubic)
{
	cubic->epoch_ticks = conn->now_ticks;
	cubic->acked = acked;
	cubic->reno_cwnd = conn->cwnd;
	if (cubic->max <= conn->cwnd) {
		cubic->k = 0;
		cubic->origin = conn->cwnd;
	} else {
		/* K = cbrt((Wmax - cwnd) / C), with s << 10 cubed. */
		u64 per_packet = (1ULL << (10 + 3 * CUBIC_TIME_SHIFT)) / cubic_c;

		cubic->k = cubic_root(per_packet * (cubic->max - conn->cwnd));
		cubic->origin = cubic->max;
	}
}

/* Grow towards the window that the curve reaches one minimum RTT from now. */
static void cubic_follow_curve(const struct cc_connection *conn, struct cubic *cubic)
{
	u32 cwnd = conn->cwnd;
	u32 us_per_tick = CC_USEC_PER_SEC / conn->tick_hz;
	u32 target, delta;
	u64 t, apart;

	t = (u64)(s64)(s32)(conn->now_ticks - cubic->epoch_ticks);
	t += (cubic->min_rtt_us + us_per_tick - 1) / us_per_tick;
	t = (t << CUBIC_TIME_SHIFT) / conn->tick_hz;

	apart = t < cubic->k ? cubic->k - t : t - cubic->k;
	delta = (u32)(cubic_c * apart * apart * apart >> (10 + 3 * CUBIC_TIME_SHIFT));
	target = t < cubic->k ? cubic->origin - delta : cubic->origin + delta;
	cubic->per_packet = target > cwnd ? cwnd / (target - cwnd) : 100 * cwnd;
	if (!cubic->max)
		cubic->per_packet = cc_min(cubic->per_packet, CUBIC_SLOWEST_FIRST);
}

/* Reno with CUBIC's beta grows by 3 (1 - beta) / (1 + beta) per RTT (RFC 9438, section 4.3). */
static void cubic_be_reno_friendly(const struct cc_connection *conn, struct cubic *cubic)
{
	u32 scale = 8 * (CUBIC_SCALE + cubic_beta) / 3 / (CUBIC_SCALE - cubic_beta);
	u32 per_packet = conn->cwnd * scale >> 3;

	if (cubic->acked > per_packet && per_packet) {
		u32 steps = (cubic->acked - 1) / per_packet;

		cubic->acked -= steps * per_packet;
		cubic->reno_cwnd += steps;
	}
	if (cubic->reno_cwnd > conn->cwnd)
		cubic->per_packet =
		    cc_min(cubic->per_packet, conn->cwnd / (cubic->reno_cwnd - conn->cwnd));
}

static void cubic_update(const struct cc_connection *conn, u32 acked, struct cubic *cubic)
{
	u32 now = conn->now_ticks;

	cubic->acked += acked;
	if (cubic->last_cwnd == conn->cwnd &&
	    (s32)(now - cubic->last_ticks) <= (s32)(conn->tick_hz / 32))
		return;
	/* The curve moves at most once a jiffy. */
	if (!cubic->epoch_ticks || now != cubic->last_ticks) {
		cubic->last_cwnd = conn->cwnd;
		cubic->last_ticks = now;
		if (!cubic->epoch_ticks)
			cubic_begin_epoch(conn, acked, cubic);
		cubic_follow_curve(conn, cubic);
	}
	if (cubic_reno_friendly)
		cubic_be_reno_friendly(conn, cubic);
	cubic->per_packet = cc_max(cubic->per_packet, CUBIC_FASTEST);
}

/* --- what the stack calls -------------------------------------------------------------------- */

static void cubic_init(struct cc_connection *conn, struct cubic *cubic)
{
	if (hystart)
		cubic_begin_round(conn, cubic);
}

static void cubic_on_acked(struct cc_connection *conn, u32 acked, struct cubic *cubic)
{
	if (!conn->is_cwnd_limited)
		return;
	if (cc_in_slow_start(conn)) {
		acked = window_slow_start(conn, acked);
		if (!acked)
			return;
	}
	cubic_update(conn, acked, cubic);
	window_grow(conn, cubic->per_packet, acked);
}

static void cubic_on_rtt(struct cc_connection *conn, u32 rtt_us, struct cubic *cubic)
{
	/* For a second after a loss, RTTs show the queue that caused it. */
	if (cubic->epoch_ticks && (s32)(conn->now_ticks - cubic->epoch_ticks) < (s32)conn->tick_hz)
		return;
	if (!rtt_us)
		rtt_us = 1;
	if (!cubic->min_rtt_us || cubic->min_rtt_us > rtt_us)
		cubic->min_rtt_us = rtt_us;
	if (hystart && !cubic->found && cc_in_slow_start(conn))
		cubic_hystart(conn, rtt_us, cubic);
}

static u32 cubic_ssthresh(const struct cc_connection *conn, struct cubic *cubic)
{
	u32 cwnd = conn->cwnd;

	cubic->epoch_ticks = 0;
	if (cwnd < cubic->max && cubic_fast_convergence)
		cubic->max = cwnd * (CUBIC_SCALE + cubic_beta) / (2 * CUBIC_SCALE);
	else
		cubic->max = cwnd;
	return cc_max(cwnd * cubic_beta / CUBIC_SCALE, 2);
}

/* A retransmission timeout: forget everything about the path. */
static void cubic_set_state(struct cc_connection *conn, u8 state, struct cubic *cubic)
{
	const struct cubic nothing = {0};

	if (state != CC_CA_LOSS)
		return;
	*cubic = nothing;
	cubic_begin_round(conn, cubic);
}

/* Time without data to send does not count on the curve. */
static void cubic_on_event(struct cc_connection *conn, u32 event, struct cubic *cubic)
{
	s32 idle = (s32)(conn->now_ticks - conn->last_sent_ticks);

	if (event != CC_EVENT_TX_START || !cubic->epoch_ticks || idle <= 0)
		return;
	cubic->epoch_ticks += (u32)idle;
	if (cc_after(cubic->epoch_ticks, conn->now_ticks))
		cubic->epoch_ticks = conn->now_ticks;
}

#endif
