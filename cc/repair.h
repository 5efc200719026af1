/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/*
 * What the repair decides, each decision once: steady.h uses it in BPF and in our controls, and
 * crates/pacer/pacer.h in QUIC stacks. docs/repair.md states the rule. Integers only; nothing is
 * included, so that it compiles in a kernel, as BPF and in any program.
 *
 * Amounts are packets or bytes, as the caller counts; rule->packet is a full packet in that unit.
 * crates/pacer/repair-vectors.txt has events and decisions, by which a port can be checked.
 */
#ifndef BROBUST_CC_REPAIR_H
#define BROBUST_CC_REPAIR_H

#ifndef REPAIR_INLINE
#define REPAIR_INLINE static inline
#endif

#define REPAIR_SHIFT 8	/* parts of a stall, and what a round leaves, are in 256ths */
#define REPAIR_RETURN 3 /* shift: the bound returns to where it was by an eighth of the way */
#define REPAIR_MAX_EXCESS (1U << 31)

/* clang-format off */
#define REPAIR_AHEAD	384  /* << 8: part of a stall that is made up for */
#define REPAIR_WINDOW	320  /* << 8: part of the longest stall that the window holds beside a BDP */
#define REPAIR_MEMORY	1000 /* ms; a stall is remembered for one to two times this */
#define REPAIR_HOLD	10000 /* ms; so long after a stall a bound that is reached keeps the memory */
#define REPAIR_LOSS	7    /* what a lost packet adds to the excess; 0: losses bound nothing */
#define REPAIR_OVERFLOW	20   /* packets: excess at which a buffer overflowed */
#define REPAIR_CUT	8    /* packets by which a lost one in excess lowers the bound */
#define REPAIR_BETA	179  /* << 8: least that a round leaves of the bound */
#define REPAIR_GROWTH	10   /* 1024ths that another round adds to a bound that it reached */
/* clang-format on */

struct repair_rule {
	unsigned int packet; /* a full one; the others as above */
	unsigned int ahead, window, memory_ms, hold_ms, loss, overflow, cut, beta, growth;
};

/* The longest stalls, all in ns. */
struct repair_memory {
	unsigned long long last;   /* when the last stall ended */
	unsigned long long since;  /* when recent began */
	unsigned long long recent; /* longest stall since then */
	unsigned long long before; /* and in the time before */
};

/* The bound of what is in flight. */
struct repair_bound {
	unsigned int excess;	   /* what was lost beyond chance, times rule->loss */
	unsigned int round_excess; /* its maximum in the round */
	unsigned int round_max;	   /* maximum in flight in the round */
	unsigned int cap;	   /* the bound; 0: none */
	unsigned int last_cap;	   /* before it was cut */
	_Bool was_cut;		   /* at the end of the last round */
};

REPAIR_INLINE unsigned long long repair_longest(const struct repair_memory *memory)
{
	return memory->recent > memory->before ? memory->recent : memory->before;
}

REPAIR_INLINE void repair_forget(const struct repair_rule *rule, unsigned long long now,
				 struct repair_memory *memory)
{
	unsigned long long age = now - memory->since;
	unsigned long long kept = rule->memory_ms * 1000000ULL;

	if (age < kept)
		return;
	memory->before = age < 2 * kept ? memory->recent : 0;
	memory->recent = 0;
	memory->since = now;
}

/*
 * Record a stall that ends now. Return the lag after it: what a whole slot did not make up for is
 * dropped.
 */
REPAIR_INLINE unsigned long long repair_lag(const struct repair_rule *rule, unsigned long long lag,
					    unsigned long long stall, unsigned long long now,
					    struct repair_memory *memory)
{
	unsigned long long max;

	memory->last = now;
	if (memory->recent < stall)
		memory->recent = stall;
	lag += stall * rule->ahead >> REPAIR_SHIFT;
	max = repair_longest(memory) * rule->ahead >> REPAIR_SHIFT;
	return lag < max ? lag : max;
}

/* Return the time, in ns, of which the window holds what the bandwidth carries, beside a BDP. */
REPAIR_INLINE unsigned long long repair_ahead(const struct repair_rule *rule,
					      const struct repair_memory *memory)
{
	return repair_longest(memory) * rule->window >> REPAIR_SHIFT;
}

/* Return the window for a BDP and what the bandwidth carries in that time. */
REPAIR_INLINE unsigned long long repair_window(const struct repair_rule *rule,
					       unsigned long long bdp, unsigned long long ahead)
{
	return (bdp > ahead ? bdp : ahead) + bdp + 4ULL * rule->packet;
}

/* Count what an ACK shows as lost and as delivered. */
REPAIR_INLINE void repair_count(const struct repair_rule *rule, unsigned int lost,
				unsigned int delivered, struct repair_bound *bound)
{
	unsigned long long excess = bound->excess + (unsigned long long)lost * rule->loss;

	excess -= excess < delivered ? excess : delivered;
	bound->excess = excess < REPAIR_MAX_EXCESS ? (unsigned int)excess : REPAIR_MAX_EXCESS;
	if (bound->round_excess < bound->excess)
		bound->round_excess = bound->excess;
}

REPAIR_INLINE void repair_cut(const struct repair_rule *rule, struct repair_bound *bound)
{
	unsigned int from = bound->cap ? bound->cap : bound->round_max;
	unsigned int min = (unsigned int)((unsigned long long)from * rule->beta >> REPAIR_SHIFT);
	unsigned long long by = (unsigned long long)bound->round_excess * rule->cut;

	by /= rule->loss ? rule->loss : 1;
	bound->last_cap = from;
	bound->cap = by < from ? from - (unsigned int)by : 0;
	if (bound->cap < min)
		bound->cap = min;
	if (bound->cap < 4 * rule->packet)
		bound->cap = 4 * rule->packet;
	bound->excess = 0;
}

REPAIR_INLINE void repair_raise(const struct repair_rule *rule, struct repair_bound *bound)
{
	unsigned int by = (unsigned int)((unsigned long long)bound->cap * rule->growth >> 10);

	if (by < rule->packet)
		by = rule->packet;
	if (bound->cap < bound->last_cap && by < (bound->last_cap - bound->cap) >> REPAIR_RETURN)
		by = (bound->last_cap - bound->cap) >> REPAIR_RETURN;
	bound->cap += by;
}

/*
 * End a round, with so much in flight. Without a stall that is remembered there is no bound. Where
 * the bound keeps the data no stall is seen, so a bound that was reached keeps the memory; but not
 * for ever, for other flows' losses keep it low as well when the CPU has long come back.
 */
REPAIR_INLINE void repair_end_round(const struct repair_rule *rule, unsigned int in_flight,
				    unsigned long long now, struct repair_memory *memory,
				    struct repair_bound *bound)
{
	_Bool overflowed = bound->round_excess >= (unsigned long long)rule->overflow * rule->packet;
	_Bool cut = 0;

	if (!repair_longest(memory)) {
		bound->cap = 0;
	} else if (overflowed && !bound->was_cut) {
		repair_cut(rule, bound);
		cut = 1;
	} else if (overflowed) {
		bound->excess = 0; /* what was sent before the cut teaches nothing */
	} else if (bound->cap && bound->round_max >= (unsigned long long)bound->cap * 9 / 10) {
		if (now - memory->last < rule->hold_ms * 1000000ULL)
			memory->since = now;
		repair_raise(rule, bound);
	}
	bound->was_cut = cut;
	bound->round_excess = 0;
	bound->round_max = in_flight;
}

#endif
