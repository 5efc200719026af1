/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/*
 * Draws flows and prints what cc/repair.h decides in them (draw SEED FLOWS), or checks a file of
 * such flows against cc/repair.h and against crates/pacer/pacer.h, with packets of one byte
 * (check FILE). crates/pacer/repair-vectors.txt is `draw 133 2`, which notices every change of a
 * constant or an operator that 8 flows of seed 1 notice; its first lines explain it.
 */
#include "pacer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS UINT64_C(1000000)
#define BEGIN (1000 * MS)

/* One flow, as the header and the pacer see it. */
struct flow {
	struct repair_memory memory;
	struct repair_bound bound;
	uint32_t in_flight;
	uint64_t resolved, round;
	uint64_t now;
	struct pacer pacer;
};

static const char *const explained =
    "# What cc/repair.h decides in drawn flows, written by tests/programs/repair_vectors.c. "
    "Amounts\n"
    "# are packets, with the rule's own constants.\n"
    "#\n"
    "#   flow N                   a flow begins with N in flight, just after a stall of 10 ms\n"
    "#   ack LOST DELIVERED = EXCESS CAP     what an ACK shows, and both after it\n"
    "#   round LOST DELIVERED = EXCESS CAP   the same, and a round trip ends with it\n"
    "#   timeout N                so many are marked lost by a timeout; it counts with no ACK\n"
    "#   send N                   so many leave\n"
    "#   pass N                   so many milliseconds pass without a stall\n"
    "#   window BDP AHEAD = N     the window for a BDP and what a stall holds back\n";

static void begin(struct flow *f, uint32_t in_flight)
{
	struct repair_rule rule;

	*f = (struct flow){.now = BEGIN, .in_flight = in_flight};
	pacer_init(&f->pacer, PACER_KEPT, 1, 1 * MS, 100 * MS);
	rule = pacer_repair(&f->pacer);
	/* The pacer sees the stall: it was asked for a packet that was due 10 ms ago. */
	pacer_sent(&f->pacer, f->now - 13 * MS, 3, in_flight - 3, 1000);
	pacer_next(&f->pacer, f->now - 13 * MS, 1000);
	pacer_next(&f->pacer, f->now, 1000);
	pacer_idle(&f->pacer);
	repair_forget(&rule, f->now, &f->memory);
	repair_lag(&rule, 0, 10 * MS, f->now, &f->memory);
	f->bound.round_max = in_flight;
}

static void sends(struct flow *f, uint32_t packets)
{
	pacer_sent(&f->pacer, f->now, packets, f->in_flight, 0);
	f->in_flight += packets;
	if (f->bound.round_max < f->in_flight)
		f->bound.round_max = f->in_flight;
}

/* Returns whether a round ended. */
static int acks(struct flow *f, uint32_t lost, uint32_t delivered)
{
	struct repair_rule rule = pacer_repair(&f->pacer);

	pacer_lost(&f->pacer, lost);
	pacer_acked(&f->pacer, delivered);
	repair_count(&rule, lost, delivered, &f->bound);
	f->in_flight -= lost + delivered;
	f->resolved += lost + delivered;
	if (f->resolved < f->round)
		return 0;
	repair_end_round(&rule, f->in_flight, f->now, &f->memory, &f->bound);
	f->round = f->resolved + f->in_flight;
	return 1;
}

static void times_out(struct flow *f, uint32_t lost)
{
	pacer_lost(&f->pacer, lost);
	pacer_timeout(&f->pacer);
	f->in_flight -= lost;
	f->resolved += lost;
}

static void passes(struct flow *f, uint32_t ms)
{
	struct repair_rule rule = pacer_repair(&f->pacer);

	f->now += ms * MS;
	pacer_next(&f->pacer, f->now, 0);
	repair_forget(&rule, f->now, &f->memory);
}

static int is_same(const struct flow *f)
{
	const struct repair_bound *a = &f->bound, *b = &f->pacer.bound;

	return a->excess == b->excess && a->round_excess == b->round_excess &&
	       a->round_max == b->round_max && a->cap == b->cap && a->last_cap == b->last_cap &&
	       a->was_cut == b->was_cut && f->in_flight == f->pacer.in_flight;
}

static unsigned long long window_of(struct flow *f, uint32_t bdp, uint32_t ahead)
{
	struct repair_rule rule = pacer_repair(&f->pacer);

	return repair_window(&rule, bdp, ahead);
}

/* splitmix64 (Steele, Lea, Flood 2014). */
static uint32_t below(uint64_t *state, uint32_t bound)
{
	uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return (uint32_t)((z ^ z >> 31) % bound);
}

/* After one stall and one overflow the bound is reached in every round, until it is forgotten. */
static void hold(void)
{
	struct flow f;

	begin(&f, 200);
	puts("flow 200");
	for (int i = 0; i < 30; i++) {
		uint32_t lost = i ? 0 : 60, resolved = f.in_flight;

		acks(&f, lost, resolved - lost);
		printf("round %" PRIu32 " %" PRIu32 " = %u %u\n", lost, resolved - lost,
		       f.bound.excess, f.bound.cap);
		sends(&f, f.bound.cap ? f.bound.cap : 200);
		printf("send %" PRIu32 "\n", f.in_flight);
		passes(&f, 500);
		puts("pass 500");
	}
}

static void draw(uint64_t seed, int flows)
{
	fputs(explained, stdout);
	hold();
	for (int i = 0; i < flows; i++) {
		struct flow f;
		uint32_t window = 110 + below(&seed, 330), chance = below(&seed, 3) ? 200 : 15;
		uint32_t buffer = window - below(&seed, window / 2), bdp = below(&seed, 500);

		begin(&f, window);
		printf("flow %" PRIu32 "\n", window);
		printf("window %" PRIu32 " %" PRIu32 " = %llu\n", bdp, window,
		       window_of(&f, bdp, window));
		for (int ack = 0; ack < 100; ack++) {
			uint32_t most = 1 + below(&seed, 16), lost = 0, room;

			if (i && !below(&seed, 200)) {
				passes(&f, 2000);
				puts("pass 2000");
			} else if (i && !below(&seed, 90) && f.in_flight > 20) {
				times_out(&f, 20);
				puts("timeout 20");
			}
			/* In the first flow an excess of exactly 20, and then nothing is lost. */
			if (!i)
				most = ack ? f.in_flight / 3 + 1 : 4;
			most = most < f.in_flight ? most : f.in_flight;
			/* A buffer that overflows drops the second half of what comes; the rest is chance. */
			for (uint32_t n = 0; i && n < most; n++)
				lost +=
				    !below(&seed, chance) || (f.in_flight > buffer && 2 * n > most);
			if (!i && !ack)
				lost = 3;
			printf("%s %" PRIu32 " %" PRIu32,
			       acks(&f, lost, most - lost) ? "round" : "ack", lost, most - lost);
			printf(" = %u %u\n", f.bound.excess, f.bound.cap);
			room = f.bound.cap && f.bound.cap < window ? f.bound.cap : window;
			if (f.in_flight < room && below(&seed, 12)) {
				printf("send %" PRIu32 "\n", room - f.in_flight);
				sends(&f, room - f.in_flight);
			}
			if (!below(&seed, 30))
				buffer = window - below(&seed, 3) / 2 * below(&seed, window / 2);
		}
	}
}

static int check(FILE *file)
{
	char line[128], what[16], shown[64];
	int number = 0, checked = 0, wrong = 0;
	struct flow f = {0};

	while (fgets(line, sizeof(line), file)) {
		uint32_t a = 0, b = 0;
		const char *want = strchr(line, '=');

		number++;
		line[strcspn(line, "\n")] = 0;
		if (*line == '#' || sscanf(line, "%15s %" SCNu32 " %" SCNu32, what, &a, &b) < 1)
			continue;
		*shown = 0;
		if (!strcmp(what, "flow")) {
			begin(&f, a);
		} else if (!strcmp(what, "send")) {
			sends(&f, a);
		} else if (!strcmp(what, "timeout")) {
			times_out(&f, a);
		} else if (!strcmp(what, "pass")) {
			passes(&f, a);
		} else if (!strcmp(what, "window")) {
			snprintf(shown, sizeof(shown), "= %llu", window_of(&f, a, b));
			/* The pacer knows of a stall of 10 ms, of which the window holds 12.5. */
			if (pacer_window(&f.pacer, UINT64_C(80) * b, a, 0) != window_of(&f, a, b)) {
				printf("line %d: the pacer has another window\n", number);
				wrong++;
			}
		} else if (!strcmp(what, "ack") || !strcmp(what, "round")) {
			int ended = acks(&f, a, b);

			snprintf(shown, sizeof(shown), "= %u %u", f.bound.excess, f.bound.cap);
			if (ended != !strcmp(what, "round") || !is_same(&f)) {
				printf("line %d: the pacer has another round or bound\n", number);
				wrong++;
			}
		} else {
			printf("line %d: what is %s?\n", number, what);
			wrong++;
		}
		if (!want)
			continue;
		checked++;
		if (strcmp(want, shown)) {
			printf("line %d: %s instead of %s\n", number, shown, want);
			wrong++;
		}
	}
	printf("%d checked, %d wrong\n", checked, wrong);
	return wrong || !checked;
}

int main(int argc, char **argv)
{
	FILE *file;
	int bad;

	if (argc == 4 && !strcmp(argv[1], "draw")) {
		draw(strtoull(argv[2], NULL, 10), atoi(argv[3]));
		return 0;
	}
	file = argc == 3 && !strcmp(argv[1], "check") ? fopen(argv[2], "r") : NULL;
	if (!file)
		return 2;
	bad = check(file);
	fclose(file);
	return bad;
}
