/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/*
 * A pacer that keeps its schedule when the CPU was away, and a detector of such
 * absences: C11 or C++11, integers only. What is decided stands in repair.h (cc/ of
 * brobust), which bbr_steady has, too. The same rules as src/ in Rust; README.md
 * states them, vectors.txt checks both. Names ending in _ns are nanoseconds of any
 * clock that does not go back, below 2^62; rates are bytes per second, at most
 * 10^12. Nothing here reads a clock, allocates, or fails.
 */
#ifndef BROBUST_PACER_H
#define BROBUST_PACER_H

#include <stdbool.h>
#include <stdint.h>

/* In C++ a structure is zero as its own type() makes it, and there is no _Bool, which repair.h has. */
#ifdef __cplusplus
#define PACER_ZERO(type) type()
#ifndef _Bool
#define _Bool bool
#define PACER_HAS_NO_BOOL
#endif
#else
#define PACER_ZERO(type)                                                                           \
	(struct type)                                                                              \
	{                                                                                          \
		0                                                                                  \
	}
#endif

#include "repair.h"

#ifdef PACER_HAS_NO_BOOL
#undef _Bool
#undef PACER_HAS_NO_BOOL
#endif

/* How much of a missed departure is made up for. */
enum pacer_rule {
	PACER_NONE,	 /* nothing (draft-ietf-ccwg-bbr-06, cloudflare/quiche) */
	PACER_HALF_GAP,	 /* half of the gap to the next packet (Linux TCP) */
	PACER_QUANTUM,	 /* one burst (picoquic, quinn, s2n-quic, quic-go, ...) */
	PACER_INTERVALS, /* five bursts, which are write intervals (mvfst) */
	PACER_LOOP,	 /* 1.5 times the mean time between two calls (HAProxy) */
	PACER_KEPT,	 /* what the CPU kept, within a bound that losses teach */
};

/* What kept the data when the stack last looked. */
enum pacer_kept_by { PACER_BY_NOTHING, PACER_BY_PACING, PACER_BY_WINDOW };

/* The first four are given to pacer_init(); all else is the pacer's own. */
struct pacer {
	enum pacer_rule rule;
	uint32_t packet_bytes; /* a full packet */
	uint64_t burst_ns;     /* how much earlier than due a packet may leave */
	uint64_t max_lag_ns;   /* the most that is ever made up for */

	uint64_t next_ns;
	uint64_t looked_ns;
	enum pacer_kept_by kept_by;
	uint64_t ack_ns; /* by the window: an ACK is expected within that */
	uint64_t lag_ns; /* yet to be made up for */
	uint64_t rate;
	uint64_t gap_ns;
	uint64_t mean_loop_ns;
	struct repair_memory absences;
	struct repair_bound bound; /* bytes in flight, above which none leaves early */
	uint32_t in_flight; /* bytes, as last told, less what was acknowledged and lost since */
	uint32_t lost;	    /* bytes, since the last ACK */
	uint64_t resolved;  /* bytes acknowledged or lost since the beginning */
	uint64_t round;	    /* the round ends at this value of resolved */
};

#define PACER_SECOND_NS UINT64_C(1000000000)
/* Later times, and longer ones, are taken for this: sums of two of them fit. */
#define PACER_MAX_NS (UINT64_C(1) << 62)
#define PACER_MAX_RATE UINT64_C(1000000000000)
#define PACER_MAX_BYTES UINT64_C(0x7fffffff)
/* While there is a lag, gaps are shortened to a 16th at most: a burst is spread a little. */
#define PACER_CATCH_UP_SHIFT 4
#define PACER_MAX_PACKET UINT64_C(0xffff)
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
 * such as 1 ms; a call that is later by more than twice this is an absence; at most a second.
 * max_lag_ns: such as 100 ms; at most a second.
 */
static inline void pacer_init(struct pacer *p, enum pacer_rule rule, uint32_t packet_bytes,
			      uint64_t burst_ns, uint64_t max_lag_ns)
{
	*p = PACER_ZERO(pacer);
	p->rule = rule;
	p->packet_bytes = (uint32_t)pacer_max(pacer_min(packet_bytes, PACER_MAX_PACKET), 1);
	p->burst_ns = pacer_min(burst_ns, PACER_SECOND_NS);
	p->max_lag_ns = max_lag_ns;
}

static inline struct repair_rule pacer_repair(const struct pacer *p)
{
	struct repair_rule rule = PACER_ZERO(repair_rule);

	rule.packet = p->packet_bytes;
	rule.ahead = REPAIR_AHEAD;
	rule.window = REPAIR_WINDOW;
	rule.memory_ms = REPAIR_MEMORY;
	rule.hold_ms = REPAIR_HOLD;
	rule.loss = REPAIR_LOSS;
	rule.overflow = REPAIR_OVERFLOW;
	rule.cut = REPAIR_CUT;
	rule.beta = REPAIR_BETA;
	rule.growth = REPAIR_GROWTH;
	return rule;
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

/*
 * The stack looks again. If only pacing kept its data, it should have looked
 * when the next packet was due; if the window did, an ACK should have come
 * within a round trip. If neither was so, the CPU was away.
 */
static inline void pacer_look_for_absence(struct pacer *p, uint64_t now_ns)
{
	struct repair_rule rule = pacer_repair(p);
	uint64_t since = p->next_ns, wait = 0, late;

	repair_forget(&rule, now_ns, &p->absences);
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
	late = pacer_min(now_ns - since, pacer_most_ns(p));
	p->kept_by = PACER_BY_NOTHING;
	p->next_ns = pacer_max(p->next_ns, now_ns);
	if (!p->rate) {
		p->lag_ns = 0;
		return;
	}
	/* Timers that are rounded up are late by two bursts at most: no absence. With half more a flow
	 * finds out that the path carries more. */
	if (now_ns - since > 2 * p->burst_ns)
		p->lag_ns = repair_lag(&rule, p->lag_ns, late, now_ns, &p->absences);
	else
		p->lag_ns += late;
	p->lag_ns = pacer_min(p->lag_ns, pacer_most_ns(p));
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

/* How much shorter the gap after a packet is. */
static inline uint64_t pacer_credit(const struct pacer *p, uint32_t in_flight)
{
	if (p->rule != PACER_KEPT)
		return pacer_min(p->gap_ns, p->lag_ns);
	if (p->bound.cap && in_flight >= p->bound.cap)
		return 0;
	return pacer_min(p->gap_ns - (p->gap_ns >> PACER_CATCH_UP_SHIFT), p->lag_ns);
}

/* Record that a packet, or several, left. in_flight_bytes: without it. */
static inline void pacer_sent(struct pacer *p, uint64_t now_ns, uint32_t bytes,
			      uint64_t in_flight_bytes, uint64_t rate)
{
	uint32_t before = (uint32_t)pacer_min(in_flight_bytes, PACER_MAX_BYTES);
	uint64_t credit;

	pacer_look(p, now_ns, rate);
	p->kept_by = PACER_BY_NOTHING;
	p->in_flight = (uint32_t)pacer_min((uint64_t)before + bytes, PACER_MAX_BYTES);
	p->bound.round_max = (uint32_t)pacer_max(p->bound.round_max, p->in_flight);
	if (!p->rate)
		return;
	p->gap_ns = bytes * PACER_SECOND_NS / p->rate;
	credit = pacer_credit(p, before);
	p->lag_ns -= credit;
	p->next_ns = pacer_max(p->next_ns, pacer_min(now_ns, PACER_MAX_NS)) + p->gap_ns - credit;
	p->next_ns = pacer_min(p->next_ns, PACER_MAX_NS);
}

/*
 * Say that data waits, but the congestion window is full: now, and at each call
 * until it is not. rtt_ns: the least round-trip time, or a quarter of the
 * smoothed one if that is longer. What the peer's flow control keeps is no data:
 * the peer opens it when its application reads, which may be late for any reason.
 */
static inline void pacer_window_full(struct pacer *p, uint64_t now_ns, uint64_t window_bytes,
				     uint64_t rtt_ns)
{
	pacer_look(p, now_ns, p->rate);
	p->kept_by = PACER_BY_WINDOW;
	p->ack_ns = pacer_min(rtt_ns, PACER_MAX_NS);
	/* A window that is small for a reason, as BBR's in PROBE_RTT, takes no burst. */
	window_bytes = pacer_min(window_bytes, PACER_MAX_BYTES);
	if (p->rate)
		p->lag_ns = pacer_min(p->lag_ns, 4 * window_bytes * PACER_SECOND_NS / p->rate);
}

/* Say that there is no data that may be sent: what an application did not write, or the peer does not
 * admit, is not late. */
static inline void pacer_idle(struct pacer *p)
{
	p->kept_by = PACER_BY_NOTHING;
	p->lag_ns = 0;
}

/* Say that a timeout declared everything lost: nothing is made up for, and the losses since the
 * last ACK teach nothing. */
static inline void pacer_timeout(struct pacer *p)
{
	pacer_idle(p);
	p->lost = 0;
}

static inline void pacer_resolve(struct pacer *p, uint32_t bytes)
{
	p->resolved += bytes;
	p->in_flight -= (uint32_t)pacer_min(p->in_flight, bytes);
}

/* Say that so much was lost. It counts at the next ACK. */
static inline void pacer_lost(struct pacer *p, uint32_t bytes)
{
	p->lost = (uint32_t)pacer_min((uint64_t)p->lost + bytes, PACER_MAX_BYTES);
	pacer_resolve(p, bytes);
}

/*
 * Say that an ACK came, and how much it acknowledged that was not before. A buffer
 * that overflows drops most of the packets that follow; random losses are far apart.
 */
static inline void pacer_acked(struct pacer *p, uint32_t bytes)
{
	struct repair_rule rule = pacer_repair(p);

	repair_count(&rule, p->lost, bytes, &p->bound);
	p->lost = 0;
	pacer_resolve(p, bytes);
	/* A round trip is over when all that was in flight as it began is acknowledged or lost. */
	if (p->resolved < p->round)
		return;
	repair_end_round(&rule, p->in_flight, p->looked_ns, &p->absences, &p->bound);
	p->round = p->resolved + p->in_flight;
}

/*
 * Return the congestion window for a control whose own is window_bytes, and whose
 * estimates are bw (bytes per second) and bdp_bytes: it must hold what is sent ahead.
 * It replaces the control's own while an absence is remembered, so ask in PROBE_BW only:
 * in PROBE_RTT, in recovery from persistent congestion and before the pipe was full the
 * control has a reason for a smaller one.
 */
static inline uint64_t pacer_window(const struct pacer *p, uint64_t bw, uint64_t bdp_bytes,
				    uint64_t window_bytes)
{
	struct repair_rule rule = pacer_repair(p);
	uint64_t ahead = repair_ahead(&rule, &p->absences) / 1000;

	if (p->rule != PACER_KEPT)
		return window_bytes;
	ahead = ahead * pacer_min(bw, PACER_MAX_RATE) / 1000000;
	if (ahead)
		window_bytes = repair_window(&rule, pacer_min(bdp_bytes, PACER_MAX_BYTES), ahead);
	return p->bound.cap ? pacer_min(window_bytes, p->bound.cap) : window_bytes;
}

/* Return how far the flow is behind its schedule and will make up for, ns. */
static inline uint64_t pacer_lag(const struct pacer *p)
{
	return p->lag_ns;
}

/* Return the bytes in flight above which nothing is sent ahead; 0 if no loss has taught a bound. */
static inline uint64_t pacer_bound(const struct pacer *p)
{
	return p->bound.cap;
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
	*d = PACER_ZERO(pacer_detector);
	d->window_ns = pacer_max(window_ns, 1);
	d->tolerance_ns = tolerance_ns;
	d->late_permille = PACER_UNKNOWN;
	d->deficit_permille = PACER_UNKNOWN;
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
