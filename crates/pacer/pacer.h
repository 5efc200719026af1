/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/*
 * A pacer that keeps its schedule when the CPU was away, and a detector of such
 * absences: C11, integers only. The same rules as src/ in Rust; README.md states
 * them, and vectors.txt checks both. Names ending in _ns are nanoseconds of any
 * clock that does not go back, below 2^62; rates are bytes per second, at most
 * 10^12. Nothing here reads a clock, allocates, or fails.
 */
#ifndef BROBUST_PACER_H
#define BROBUST_PACER_H

#include <stdbool.h>
#include <stdint.h>

/* How much of a missed departure is made up for. */
enum pacer_rule {
	PACER_NONE,	 /* nothing (draft-ietf-ccwg-bbr-06, cloudflare/quiche) */
	PACER_HALF_GAP,	 /* half of the gap to the next packet (Linux TCP) */
	PACER_QUANTUM,	 /* one burst (picoquic, quinn, s2n-quic, quic-go, ...) */
	PACER_INTERVALS, /* five bursts, which are write intervals (mvfst) */
	PACER_LOOP,	 /* 1.5 times the mean time between two calls (HAProxy) */
	PACER_KEPT,	 /* what the CPU kept, within a bound that losses teach */
};

/* How a packet was sent. Keep it with the packet, and give it back if that is lost. */
enum pacer_sent {
	PACER_ON_TIME,
	PACER_AHEAD,	 /* in the first half of what was sent to catch up */
	PACER_FAR_AHEAD, /* in the later half */
};

/* The first four are given to pacer_init(); all else is the pacer's own. */
struct pacer {
	enum pacer_rule rule;
	uint32_t packet_bytes; /* a full packet */
	uint64_t burst_ns;     /* how much earlier than due a packet may leave */
	uint64_t max_lag_ns;   /* the most that is ever made up for */

	uint64_t next_ns;
	uint64_t looked_ns;
	enum { PACER_BY_NOTHING, PACER_BY_PACING, PACER_BY_WINDOW } kept_by;
	uint64_t ack_ns;   /* by the window: an ACK is expected within that */
	uint64_t lag_ns;   /* yet to be made up for */
	uint64_t ahead_ns; /* the lag after the last absence */
	bool catching_up;
	uint64_t rate;
	uint64_t gap_ns;
	uint64_t mean_loop_ns;
	uint64_t bound_bytes; /* what may be sent ahead; 0: nothing learned */
	bool bound_binds;
	unsigned bound_grows; /* harmless absences while it binds, at most 2 */
	int64_t excess_bytes; /* lost in the later halves, less twice the first's */
};

#define PACER_SECOND_NS UINT64_C(1000000000)
/* Later times, and longer ones, are taken for this: sums of two of them fit. */
#define PACER_MAX_NS (UINT64_C(1) << 62)
#define PACER_MAX_RATE UINT64_C(1000000000000)
#define PACER_MAX_BYTES UINT64_C(0xffffffff)
/* While there is a lag, gaps are shortened to a 16th at most: a burst is spread a little. */
#define PACER_CATCH_UP_SHIFT 4
/* A bound that binds grows by a 128th for each absence, by a 32nd after two that did no harm. */
#define PACER_GROWTH_SHIFT 7
#define PACER_ACK_NS UINT64_C(2000000) /* an ACK may be so much later than a round trip */
#define PACER_LOOPS 64
#define PACER_MIN_LOOP_NS UINT64_C(1000000)

static inline uint64_t pacer_min(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static inline uint64_t pacer_max(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/*
 * Begin. packet_bytes: a full packet. burst_ns: what the stack's timers need,
 * such as 1 ms; a call that is later by more than this is an absence; at most a second.
 * max_lag_ns: such as 100 ms; at most a second.
 */
static inline void pacer_init(struct pacer *p, enum pacer_rule rule, uint32_t packet_bytes,
			      uint64_t burst_ns, uint64_t max_lag_ns)
{
	*p = (struct pacer){.rule = rule,
			    .packet_bytes = packet_bytes,
			    .burst_ns = pacer_min(burst_ns, PACER_SECOND_NS),
			    .max_lag_ns = max_lag_ns};
}

/* The bytes of a time at the rate, at most 2^32 - 1. */
static inline uint64_t pacer_bytes_of(const struct pacer *p, uint64_t ns)
{
	return pacer_min(ns / 1000 * p->rate / 1000000, PACER_MAX_BYTES);
}

/* What the later half may lose more than the first by chance, of so many bytes sent ahead. */
static inline int64_t pacer_tolerance(const struct pacer *p, uint64_t ahead_bytes)
{
	return (int64_t)pacer_max(ahead_bytes / 8, 8 * (uint64_t)p->packet_bytes);
}

static inline uint64_t pacer_most_ns(const struct pacer *p)
{
	uint64_t most = PACER_SECOND_NS;

	switch (p->rule) {
	case PACER_NONE:
		most = 0;
		break;
	case PACER_HALF_GAP:
		most = p->gap_ns / 2;
		break;
	case PACER_QUANTUM:
		most = p->burst_ns;
		break;
	case PACER_INTERVALS:
		most = 5 * p->burst_ns;
		break;
	case PACER_LOOP:
		most = pacer_max(p->mean_loop_ns, PACER_MIN_LOOP_NS) * 3 / 2;
		break;
	case PACER_KEPT:
		break;
	}
	return pacer_min(most, pacer_min(p->max_lag_ns, PACER_SECOND_NS));
}

static inline void pacer_begin_to_catch_up(struct pacer *p)
{
	uint64_t bytes;

	if (p->bound_binds) {
		p->bound_bytes += p->bound_bytes >> (PACER_GROWTH_SHIFT - p->bound_grows);
		if (p->bound_grows < 2)
			p->bound_grows++;
	}
	bytes = pacer_bytes_of(p, p->lag_ns);
	p->bound_binds = p->bound_bytes && bytes >= p->bound_bytes;
	if (p->bound_binds)
		bytes = p->bound_bytes;
	/* A loss of less than a 128th of what is sent ahead is no reason to send less. */
	p->excess_bytes -= (int64_t)(bytes >> 7);
	if (p->excess_bytes < -pacer_tolerance(p, bytes))
		p->excess_bytes = -pacer_tolerance(p, bytes);
	p->lag_ns = pacer_min(p->lag_ns, bytes * PACER_SECOND_NS / p->rate);
	p->ahead_ns = p->lag_ns;
	p->catching_up = true;
}

/*
 * The stack looks again. If only pacing kept its data, it should have looked
 * when the next packet was due; if the window did, an ACK should have come
 * within a round trip. If neither was so, the CPU was away.
 */
static inline void pacer_look_for_absence(struct pacer *p, uint64_t now_ns)
{
	uint64_t since = p->next_ns, wait = 0, late;

	if (p->kept_by == PACER_BY_NOTHING)
		return;
	if (p->kept_by == PACER_BY_WINDOW) {
		since = pacer_max(p->next_ns, p->looked_ns);
		wait = p->ack_ns + PACER_ACK_NS;
	}
	if (now_ns <= since + wait) {
		if (wait) /* What the window keeps is not late. */
			p->lag_ns -= pacer_min(p->lag_ns, now_ns - p->looked_ns);
		return;
	}
	late = now_ns - since;
	p->kept_by = PACER_BY_NOTHING;
	p->next_ns = pacer_max(p->next_ns, now_ns);
	p->lag_ns = pacer_min(p->lag_ns + late, pacer_most_ns(p));
	if (!p->rate)
		p->lag_ns = 0;
	else if (late > p->burst_ns)
		pacer_begin_to_catch_up(p);
}

static inline void pacer_look(struct pacer *p, uint64_t now_ns, uint64_t rate)
{
	p->rate = pacer_min(rate, PACER_MAX_RATE);
	/* ACKs may have been stamped before the last packet left. */
	now_ns = pacer_max(pacer_min(now_ns, PACER_MAX_NS), p->looked_ns);
	if (p->looked_ns) {
		p->mean_loop_ns += (now_ns - p->looked_ns) / PACER_LOOPS;
		p->mean_loop_ns -= p->mean_loop_ns / PACER_LOOPS;
	}
	if (p->rule == PACER_KEPT) {
		pacer_look_for_absence(p, now_ns);
	} else if (p->next_ns && now_ns > p->next_ns) {
		/* A bucket of tokens fills whatever keeps the data. */
		p->lag_ns = pacer_min(p->lag_ns + now_ns - p->next_ns, pacer_most_ns(p));
		p->next_ns = now_ns;
	}
	p->looked_ns = now_ns;
}

/*
 * Return when the next packet may leave, with data waiting and room in the
 * window: now_ns if at once, else when to ask again. rate 0: it is not paced.
 */
static inline uint64_t pacer_next(struct pacer *p, uint64_t now_ns, uint64_t rate)
{
	pacer_look(p, now_ns, rate);
	if (!p->rate || p->next_ns <= now_ns || p->next_ns - now_ns <= p->burst_ns)
		return now_ns;
	p->kept_by = PACER_BY_PACING;
	return p->next_ns;
}

/* Record that a packet, or several, left. */
static inline enum pacer_sent pacer_sent(struct pacer *p, uint64_t now_ns, uint32_t bytes,
					 uint64_t rate)
{
	enum pacer_sent how = PACER_ON_TIME;
	uint64_t credit;

	pacer_look(p, now_ns, rate);
	p->kept_by = PACER_BY_NOTHING;
	if (!p->rate)
		return how;
	p->gap_ns = bytes * PACER_SECOND_NS / p->rate;
	/* Of less than three packets the halves say nothing. */
	if (p->catching_up && p->ahead_ns >= 3 * p->gap_ns)
		how = p->lag_ns > p->ahead_ns / 2 + p->gap_ns / 2 ? PACER_AHEAD : PACER_FAR_AHEAD;
	credit = p->gap_ns - (p->rule == PACER_KEPT ? p->gap_ns >> PACER_CATCH_UP_SHIFT : 0);
	credit = pacer_min(credit, p->lag_ns);
	p->lag_ns -= credit;
	p->catching_up = p->catching_up && p->lag_ns;
	p->next_ns = pacer_max(p->next_ns, pacer_min(now_ns, PACER_MAX_NS)) + p->gap_ns - credit;
	p->next_ns = pacer_min(p->next_ns, PACER_MAX_NS);
	return how;
}

/*
 * Say that data waits, but the congestion window is full: now, and at each call
 * until it is not. rtt_ns: the least round-trip time, or a quarter of the
 * smoothed one if that is longer.
 */
static inline void pacer_window_full(struct pacer *p, uint64_t now_ns, uint64_t window_bytes,
				     uint64_t rtt_ns)
{
	pacer_look(p, now_ns, p->rate);
	p->kept_by = PACER_BY_WINDOW;
	p->ack_ns = pacer_min(rtt_ns, PACER_MAX_NS);
	/* A window that is small for a reason, as BBR's in PROBE_RTT, takes no burst. */
	window_bytes = pacer_min(window_bytes, PACER_MAX_BYTES / 4);
	if (p->rate)
		p->lag_ns = pacer_min(p->lag_ns, 4 * window_bytes * PACER_SECOND_NS / p->rate);
}

/* Say that there is no data to send: what an application did not write is not late. */
static inline void pacer_idle(struct pacer *p)
{
	p->kept_by = PACER_BY_NOTHING;
	p->lag_ns = 0;
	p->catching_up = false;
}

/* Say that a timeout declared everything lost: nothing is made up for, and these losses teach nothing. */
static inline void pacer_timeout(struct pacer *p)
{
	pacer_idle(p);
	p->ahead_ns = 0;
}

/*
 * Say that a packet was lost. Losses at random hit both halves of what was sent
 * ahead alike; a buffer that it overflows loses the later half, since it drained
 * while the CPU was away.
 */
static inline void pacer_lost(struct pacer *p, enum pacer_sent how, uint32_t bytes)
{
	uint64_t ahead, bound, least, cut;

	if (p->rule != PACER_KEPT || how == PACER_ON_TIME || !p->ahead_ns || !p->rate)
		return;
	ahead = pacer_bytes_of(p, p->ahead_ns);
	if (how == PACER_AHEAD) {
		/* Twice, because by chance the later half may lose more for a while. */
		p->excess_bytes -= 2 * (int64_t)bytes;
		if (p->excess_bytes < -pacer_tolerance(p, ahead))
			p->excess_bytes = -pacer_tolerance(p, ahead);
		return;
	}
	p->excess_bytes += bytes;
	if (p->excess_bytes <= 0)
		return;
	/* Less by four times the excess, but at least half of it. */
	bound = p->bound_bytes ? pacer_min(p->bound_bytes, ahead) : ahead;
	least = pacer_max(pacer_min(bound, ahead / 2), 4 * (uint64_t)p->packet_bytes);
	cut = pacer_min(bound, 4 * (uint64_t)p->excess_bytes);
	p->bound_bytes = pacer_max(bound - cut, least);
	p->bound_grows = 0;
	p->excess_bytes = 0;
}

/* Return how far the flow is behind its schedule and will make up for, ns. */
static inline uint64_t pacer_lag(const struct pacer *p)
{
	return p->lag_ns;
}

/* Return how much may be sent ahead, bytes; 0 if no loss has taught a bound. */
static inline uint64_t pacer_bound(const struct pacer *p)
{
	return p->bound_bytes;
}

/* A part of the window's time that is late, from which on the CPU is away; per mille. */
#define PACER_LATE_PERMILLE 100
/* A part of the samples with a deficit, from which on the flow has too little in flight; per mille. */
#define PACER_DEFICIT_PERMILLE 500
#define PACER_MIN_SAMPLES 4
#define PACER_MAX_LATE_NS (UINT64_C(1) << 54) /* more would overflow: half a year in a window */
#define PACER_UNKNOWN (-1)

/* Judges a flow over windows, one after the other. */
struct pacer_detector {
	uint64_t window_ns;
	uint64_t tolerance_ns;
	uint64_t begin_ns;
	bool began;
	uint32_t departures, samples, could_send, deficits;
	uint64_t late_ns;
	int late_permille, deficit_permille; /* of the last whole window */
};

/* window_ns: such as 10 s; at least 1. tolerance_ns: by how much a timer may be late, such as 2 ms. */
static inline void pacer_detector_init(struct pacer_detector *d, uint64_t window_ns,
				       uint64_t tolerance_ns)
{
	*d = (struct pacer_detector){.window_ns = pacer_max(window_ns, 1),
				     .tolerance_ns = tolerance_ns,
				     .late_permille = PACER_UNKNOWN,
				     .deficit_permille = PACER_UNKNOWN};
}

/* Begin another window if this one is over. */
static inline void pacer_detector_turn(struct pacer_detector *d, uint64_t now_ns)
{
	uint64_t passed;

	if (!d->began)
		d->begin_ns = now_ns;
	d->began = true;
	passed = now_ns > d->begin_ns ? now_ns - d->begin_ns : 0;
	if (passed < d->window_ns)
		return;
	d->late_permille = PACER_UNKNOWN;
	d->deficit_permille = PACER_UNKNOWN;
	if (d->departures >= PACER_MIN_SAMPLES)
		d->late_permille = (int)pacer_min(d->late_ns * 1000 / passed, 1000);
	if (d->could_send >= PACER_MIN_SAMPLES && d->could_send >= d->samples / 3)
		d->deficit_permille = (int)((uint64_t)d->deficits * 1000 / d->could_send);
	d->begin_ns = now_ns;
	d->departures = d->samples = d->could_send = d->deficits = 0;
	d->late_ns = 0;
}

/* Record that data which only pacing kept, until due_ns, was looked at again. */
static inline void pacer_detector_departure(struct pacer_detector *d, uint64_t now_ns,
					    uint64_t due_ns)
{
	pacer_detector_turn(d, now_ns);
	d->departures++;
	if (now_ns > due_ns && now_ns - due_ns > d->tolerance_ns)
		d->late_ns = pacer_min(d->late_ns + pacer_min(now_ns - due_ns, PACER_MAX_LATE_NS),
				       PACER_MAX_LATE_NS);
}

/*
 * Record the state of the flow just before it sends, when ACKs have been taken
 * in. bdp_bytes: bandwidth estimate times the least round-trip time; 0: unknown.
 * could_send: data waits, the application is not the limit, the window has room,
 * and the control has no reason to have little in flight: no PROBE_RTT, no
 * drain, no loss recovery.
 */
static inline void pacer_detector_sample(struct pacer_detector *d, uint64_t now_ns,
					 uint64_t in_flight_bytes, uint64_t bdp_bytes,
					 bool could_send)
{
	pacer_detector_turn(d, now_ns);
	d->samples++;
	if (could_send && bdp_bytes) {
		d->could_send++;
		/* Three quarters: an undisturbed BBR has about one BDP in flight. */
		if (in_flight_bytes < bdp_bytes / 4 * 3)
			d->deficits++;
	}
}

/*
 * Return the part of the last whole window's time by which departures were late,
 * per mille: of the departures that the schedule had, those that were missed.
 * PACER_UNKNOWN: too few were seen.
 */
static inline int pacer_detector_late(struct pacer_detector *d, uint64_t now_ns)
{
	pacer_detector_turn(d, now_ns);
	return d->late_permille;
}

/*
 * Return the part of the last whole window's samples with less than three
 * quarters of a BDP in flight, of those that could send, per mille.
 * PACER_UNKNOWN unless these were a third of all.
 */
static inline int pacer_detector_deficit(struct pacer_detector *d, uint64_t now_ns)
{
	pacer_detector_turn(d, now_ns);
	return d->deficit_permille;
}

/* Return whether the CPU was away for a tenth of the last window or more. */
static inline bool pacer_detector_is_late(struct pacer_detector *d, uint64_t now_ns)
{
	return pacer_detector_late(d, now_ns) >= PACER_LATE_PERMILLE;
}

/* Return whether too little was in flight in more than half of the last window's samples. */
static inline bool pacer_detector_has_deficit(struct pacer_detector *d, uint64_t now_ns)
{
	return pacer_detector_deficit(d, now_ns) > PACER_DEFICIT_PERMILLE;
}

#endif
