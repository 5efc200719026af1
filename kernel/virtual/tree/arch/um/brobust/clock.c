// SPDX-License-Identifier: GPL-2.0-only
/*
 * The clock. Time stands still while the kernel works and jumps to the next event when the kernel
 * has nothing to do (UML's inf-cpu time travel), with two differences.
 *
 * The clock may not jump to the horizon or beyond it before the controller has moved the horizon:
 * until then a frame may still arrive there. Everything that can arrive before the horizon is known
 * when it is set, so the kernel runs alone from one exchange with the controller to the next.
 *
 * The clock may only be inside a window, which is a timeslice of the kernel's CPU. An event that
 * falls between two windows happens late, when the next window begins.
 *
 * A machine of several vCPUs is one CPU here, whose windows are those of all of them together. What belongs
 * to one of them (a packet's interrupt, a pacing timer, a source) waits for that one.
 *
 * Work can be given a price (brobust_charge_cpu): then the clock moves on while the kernel works,
 * and what becomes due in that time happens late too.
 */
#include <linux/hrtimer.h>
#include <linux/interrupt.h>
#include <linux/kernel.h>
#include <linux/math64.h>
#include <linux/minmax.h>
#include <linux/sched.h>
#include <linux/sched/stat.h>
#include <linux/time-internal.h>

#include "internal.h"

extern struct list_head time_travel_events; /* arch/um/kernel/time.c */
extern ktime_t tick_next_period;	    /* kernel/time/tick-internal.h */

void (*brobust_before_exchange)(void);
void (*brobust_before_frames)(void);
void (*brobust_after_exchange)(void);

/* Return the earliest time from `t` on that is in one of the windows. Beyond the known ones that is not
 * before their end, which is never before the horizon. `first`: where the latest search ended. */
static u64 first_within(const struct brobust_window *window, u32 windows, u32 *first, u64 t)
{
	u32 i;

	if (*first >= windows || window[*first].begin > t)
		*first = 0;
	for (i = *first; i < windows; i++) {
		if (t < window[i].end) {
			*first = i;
			return max(t, window[i].begin);
		}
	}
	return windows ? max(t, window[windows - 1].end) : t;
}

static u64 in_window(u64 t)
{
	static u32 first;

	return first_within(brobust->window, brobust->windows, &first, t);
}

static u64 vcpu_from(u32 vcpu, u64 t)
{
	static u32 first[BROBUST_VCPUS];
	const struct brobust_vcpu *this = &brobust->vcpu[vcpu];
	u64 from = first_within(this->window, this->windows, &first[vcpu], t);

	return from == in_window(t) ? t : from;
}

/* Return the earliest time from `t` on at which a vCPU may run, or `t` itself if that is when any may: the clock
 * then moves there by itself, and what has waited until then happens in the order in which it fell due. Work that
 * has a price may have moved the clock beyond a timeslice in which something fell due: it waits for the next. */
u64 brobust_vcpu_from(u32 vcpu, u64 t)
{
	u64 now = brobust_now(), from;

	if (brobust->vcpus < 2)
		return t;
	from = vcpu_from(vcpu, t);
	return from < now && vcpu_from(vcpu, now) != now ? vcpu_from(vcpu, now) : from;
}

/* The vCPU on which a softirq works. */
static u32 current_vcpu;

/* Work on a vCPU from now on. Return false if it may not run now. */
bool brobust_enter_vcpu(u32 vcpu)
{
	if (brobust_vcpu_from(vcpu, brobust_now()) != brobust_now())
		return false;
	current_vcpu = vcpu;
	return true;
}

/* Return the vCPU on which the kernel works. A thread that sends is a source. */
u8 brobust_this_vcpu(void)
{
	return in_serving_softirq() || !brobust ? current_vcpu : brobust->rx_vcpu;
}

/* Work on a vCPU, whose timer has expired, from now on. If it may not run now, let the timer expire when it
 * may, and return true: until then it counts as set. */
bool brobust_timer_waits(struct hrtimer *timer, u8 vcpu)
{
	u64 now = brobust ? brobust_now() : 0;

	if (!brobust || brobust_enter_vcpu(vcpu))
		return false;
	hrtimer_set_expires(
	    timer, ktime_add_ns(hrtimer_cb_get_time(timer), brobust_vcpu_from(vcpu, now) - now));
	return true;
}

/* Return for how long the CPU may run from now on, ns; 0: it may not yet. */
u64 brobust_rest_of_timeslice(void)
{
	u64 now = brobust_now();
	u32 i;

	for (i = 0; i < brobust->windows; i++)
		if (now < brobust->window[i].end)
			return now < brobust->window[i].begin ? 0 : brobust->window[i].end - now;
	return U64_MAX;
}

/* Return how long it takes until something falls due, ns. */
u64 brobust_until_event(void)
{
	struct time_travel_event *first =
	    list_first_entry_or_null(&time_travel_events, struct time_travel_event, list);
	u64 now = brobust_now();

	return !first ? U64_MAX : first->time > now ? first->time - now : 0;
}

/* Move the clock to an event. Return false where the horizon came first: the controller has been
 * asked, and another event may now be the next one. */
int brobust_advance_to(unsigned long long event, unsigned long long *now)
{
	u64 at = max(event, *now);

	if (brobust->horizon) { /* else the kernel is still booting, and there is no network */
		at = event == S64_MAX ? event : in_window(at);
		if (at >= brobust->horizon) {
			brobust->next = at == S64_MAX ? U64_MAX : at;
			brobust_sync(BROBUST_HORIZON);
			return false;
		}
	}
	*now = at;
	return true;
}

/* Return whether anything waits for the CPU, which an interrupt or the thread of softirqs has at
 * present: where computing takes time (work.c), the clock must not move on without it. */
static bool work_waits(void)
{
	return (brobust_sent_byte_ps || brobust_received_byte_ps || brobust_accept_ns) &&
	       nr_running() > (current == this_cpu_ksoftirqd() ? 1 : 0);
}

/* Return whether nothing but what happens at `at` would happen until then: no timer, no tick, no other
 * work, no exchange with the controller, no end of the timeslice. Then a handler that has done all
 * its work may move the clock there by itself, which saves the way through the idle loop and an
 * interrupt. Timers of the timer wheel never expire before the next tick, so these few need not be
 * looked at. */
bool brobust_may_advance_to(u64 at)
{
	struct time_travel_event *first =
	    list_first_entry_or_null(&time_travel_events, struct time_travel_event, list);

	return at < brobust->horizon && in_window(at) == at && (!first || at < first->time) &&
	       at - brobust_now() < ktime_sub(tick_next_period, ktime_get()) && !need_resched() &&
	       !local_softirq_pending() && !work_waits();
}

/* Spend CPU time, inside windows. */
void brobust_charge_cpu(u64 picoseconds)
{
	static u64 owed;
	u64 ns;
	u32 i;

	if (!picoseconds || !brobust->horizon)
		return;
	owed += picoseconds;
	ns = div_u64(owed, 1000);
	owed -= ns * 1000;
	brobust->charged += ns;
	for (i = 0; ns && i < brobust->windows; i++) {
		struct brobust_window *w = &brobust->window[i];
		u64 step;

		if (w->end <= time_travel_time)
			continue;
		time_travel_time = max(time_travel_time, w->begin);
		step = min(ns, w->end - time_travel_time);
		time_travel_time += step;
		ns -= step;
	}
	time_travel_time += ns;
}

void brobust_timer_fires(void)
{
	if (!brobust)
		return;
	brobust->timers++;
	brobust_charge_cpu(brobust->timer_cost);
}

void brobust_sync(u32 reason)
{
	/* The idle loop has told lockdep that interrupts are on, as they are on a CPU that sleeps. Here it works. */
	bool sleeps = irqs_disabled() && lockdep_hardirqs_enabled();

	if (sleeps)
		lockdep_hardirqs_off(_THIS_IP_);
	brobust->reason = reason;
	brobust->now = time_travel_time;
	if (brobust_before_exchange)
		brobust_before_exchange();
	/* The controller leaves frames only with a new horizon. */
	if (reason != BROBUST_DRAIN && brobust_before_frames)
		brobust_before_frames();
	brobust_host_sync();
	brobust->tx_bytes = 0;
	brobust->acks = 0;
	if (brobust_after_exchange)
		brobust_after_exchange();
	if (sleeps) {
		lockdep_hardirqs_on_prepare();
		lockdep_hardirqs_on(_THIS_IP_);
	}
}

void brobust_sleep_until(u64 when)
{
	u64 now = brobust_now();
	ktime_t wait;

	if (when <= now)
		return;
	wait = ns_to_ktime(when - now);
	set_current_state(TASK_UNINTERRUPTIBLE);
	schedule_hrtimeout_range(&wait, 0, HRTIMER_MODE_REL);
}
