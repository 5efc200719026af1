/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* Replays vectors.txt (its first argument) on pacer.h, as vectors.rs does on src/. */
#include "../pacer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const rules[] = {"none", "half-gap", "quantum", "intervals", "loop", "kept"};

static uint64_t number(const char *word)
{
	char *end;
	uint64_t value = strtoull(word, &end, 10);

	return strcmp(end, "ms") ? value : value * 1000000;
}

static int index_of(const char *const *names, int count, const char *word)
{
	for (int i = 0; i < count; i++)
		if (!strcmp(names[i], word))
			return i;
	fprintf(stderr, "what is %s?\n", word);
	exit(2);
}

int main(int argc, char **argv)
{
	char line[256], words[8][64];
	struct pacer p = {0};
	struct pacer_detector d = {0};
	int number_of_line = 0, checked = 0, wrong = 0;
	FILE *file = argc == 2 ? fopen(argv[1], "r") : NULL;

	if (!file)
		return 2;
	while (fgets(line, sizeof(line), file)) {
		char got[64] = "", want[64] = "";
		int n = sscanf(line, "%63s %63s %63s %63s %63s %63s", words[0], words[1], words[2],
			       words[3], words[4], words[5]);
		const char *what = words[0];
		int64_t share = 0;

		number_of_line++;
		if (n < 1 || !strcmp(what, "#") || !strcmp(what, "case"))
			continue;
		if (n > 2 && !strcmp(words[n - 2], "="))
			snprintf(want, sizeof(want), "%s", words[n - 1]);
		if (!strcmp(what, "pacer")) {
			pacer_init(&p, (enum pacer_rule)index_of(rules, 6, words[1]),
				   (uint32_t)number(words[2]), number(words[3]), number(words[4]));
		} else if (!strcmp(what, "detector")) {
			pacer_detector_init(&d, number(words[1]), number(words[2]));
		} else if (!strcmp(what, "next")) {
			snprintf(got, sizeof(got), "%" PRIu64,
				 pacer_next(&p, number(words[1]), number(words[2])));
		} else if (!strcmp(what, "sent")) {
			pacer_sent(&p, number(words[1]), (uint32_t)number(words[2]),
				   number(words[3]), number(words[4]));
		} else if (!strcmp(what, "window")) {
			pacer_window_full(&p, number(words[1]), number(words[2]), number(words[3]));
		} else if (!strcmp(what, "idle")) {
			pacer_idle(&p);
		} else if (!strcmp(what, "timeout")) {
			pacer_timeout(&p);
		} else if (!strcmp(what, "lost")) {
			pacer_lost(&p, (uint32_t)number(words[1]));
		} else if (!strcmp(what, "acked")) {
			pacer_acked(&p, (uint32_t)number(words[1]));
		} else if (!strcmp(what, "cwnd")) {
			snprintf(
			    got, sizeof(got), "%" PRIu64,
			    pacer_window(&p, number(words[1]), number(words[2]), number(words[3])));
		} else if (!strcmp(what, "lag")) {
			snprintf(got, sizeof(got), "%" PRIu64, pacer_lag(&p));
		} else if (!strcmp(what, "bound")) {
			snprintf(got, sizeof(got), "%" PRIu64, pacer_bound(&p));
		} else if (!strcmp(what, "departure")) {
			pacer_detector_departure(&d, number(words[1]), number(words[2]));
		} else if (!strcmp(what, "sample")) {
			pacer_detector_sample(&d, number(words[1]), number(words[2]),
					      number(words[3]), !strcmp(words[4], "yes"));
		} else if (!strcmp(what, "late") || !strcmp(what, "deficit")) {
			share = *what == 'l' ? pacer_detector_late(&d, number(words[1]))
					     : pacer_detector_deficit(&d, number(words[1]));
			snprintf(got, sizeof(got), "%" PRId64, share);
			if (share == PACER_UNKNOWN)
				snprintf(got, sizeof(got), "unknown");
		} else {
			index_of(NULL, 0, what);
		}
		if (!*want)
			continue;
		checked++;
		if (*want >= '0' && *want <= '9')
			snprintf(want, sizeof(want), "%" PRIu64, number(words[n - 1]));
		if (strcmp(got, want)) {
			printf("line %d: %s instead of %s\n", number_of_line, got, want);
			wrong++;
		}
	}
	fclose(file);
	printf("%d checked, %d wrong\n", checked, wrong);
	return wrong || checked < 90;
}
