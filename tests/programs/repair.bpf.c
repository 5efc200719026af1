/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/*
 * cc/repair.h as BPF, one decision per run: what a test writes into the context is what the
 * decision finds there. tests/test_pacer.py replays crates/pacer/repair-vectors.txt with it.
 */
#define REPAIR_INLINE static inline __attribute__((always_inline))
#include "repair.h"

enum { COUNT, END_ROUND, FORGET, STALL };

struct call {
	unsigned int what, lost, delivered, in_flight;
	unsigned long long now, ns;
	struct repair_memory memory;
	struct repair_bound bound;
};

__attribute__((section("syscall"), used)) int decide(struct call *call)
{
	struct repair_rule rule = {
	    .packet = 1,
	    .ahead = REPAIR_AHEAD,
	    .window = REPAIR_WINDOW,
	    .memory_ms = REPAIR_MEMORY,
	    .hold_ms = REPAIR_HOLD,
	    .loss = REPAIR_LOSS,
	    .overflow = REPAIR_OVERFLOW,
	    .cut = REPAIR_CUT,
	    .beta = REPAIR_BETA,
	    .growth = REPAIR_GROWTH,
	};

	switch (call->what) {
	case COUNT:
		repair_count(&rule, call->lost, call->delivered, &call->bound);
		break;
	case END_ROUND:
		repair_end_round(&rule, call->in_flight, call->now, &call->memory, &call->bound);
		break;
	case FORGET:
		repair_forget(&rule, call->now, &call->memory);
		break;
	case STALL:
		call->ns = repair_lag(&rule, call->ns, call->ns, call->now, &call->memory);
		break;
	}
	return 0;
}
