/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* A sender whose CPU is there for 10 of every 40 ms, with two rules: docs/pacer.md shows what it prints. */
#include <inttypes.h>
#include <stdio.h>
#include "pacer.h"

#define MS UINT64_C(1000000)

static uint64_t sent_in_a_second(enum pacer_rule rule, uint64_t rate)
{
	struct pacer p;
	uint64_t now = 1, sent = 0;

	pacer_init(&p, rule, 1200, 1 * MS, 100 * MS);
	while (now < 1000 * MS) {
		uint64_t at = pacer_next(&p, now, rate);

		if (at > now) { /* a timer would fire then; the CPU is back later */
			now = at % (40 * MS) < 10 * MS ? at : (at / (40 * MS) + 1) * (40 * MS);
			continue;
		}
		pacer_sent(&p, now, 1200, 0, rate);
		sent += 1200;
	}
	return sent;
}

int main(void)
{
	printf("one burst: %" PRIu64 " bytes\n", sent_in_a_second(PACER_QUANTUM, 2500000));
	printf("kept:      %" PRIu64 " bytes\n", sent_in_a_second(PACER_KEPT, 2500000));
	return 0;
}
