// SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause
/*
 * Reports when the watched threads get a CPU, lose it, and want it back.
 *
 * Three moments say everything about a thread's share of the CPU: it is switched in, it is
 * switched out (still runnable, or asleep), it is woken. The time between "runnable" and "switched
 * in" is contention. One event each, through a ring buffer that user space empties at leisure.
 */
#include "recorder.bpf.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct watched {
	__u64 lost;
};

/* Sized by the loader: one entry per watched thread. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct watched);
} watched_tids SEC(".maps");

/*
 * 40 bytes per event with the ring's header: room for 104k events between two reads of the
 * consumer (50 ms). A busy vCPU makes some thousands per second; an idle one that is woken for
 * every packet some ten thousands.
 */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4 * 1024 * 1024);
} events SEC(".maps");

static void report(const struct task_struct *task, enum event_kind kind)
{
	__u32 tid = task->pid;
	struct watched *watched = bpf_map_lookup_elem(&watched_tids, &tid);
	struct event *event;

	if (!watched)
		return;
	event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	if (!event) {
		__sync_fetch_and_add(&watched->lost, 1);
		return;
	}
	event->ns = bpf_ktime_get_ns();
	event->lost = watched->lost;
	event->waited_ns = bpf_core_field_exists(task->sched_info.run_delay)
			       ? task->sched_info.run_delay
			       : NOT_COUNTED;
	event->tid = tid;
	event->kind = kind;
	/* No wakeup: waking the consumer here would itself disturb what is measured. */
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
}

/*
 * kernel/sched/core.c, __schedule(): a preempted thread stays runnable whatever its state says;
 * a thread that meant to sleep but has a signal pending is set back to TASK_RUNNING before the
 * tracepoint. So the state is read from the task, not from the tracepoint's fourth argument,
 * which is from before that correction (and does not exist before 5.18).
 */
static enum event_kind how_switched_out(bool preempt, const struct task_struct *prev)
{
	unsigned int state = prev->__state;

	if (preempt || state == TASK_RUNNING)
		return SWITCHED_OUT_RUNNABLE;
	if (state & TASK_DEAD)
		return EXITED;
	return SWITCHED_OUT_ASLEEP;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	report(prev, how_switched_out(preempt, prev));
	report(next, SWITCHED_IN);
	return 0;
}

/*
 * sched_wakeup rather than sched_waking: sched_waking is fired before the waker holds the
 * runqueue's lock, so it may overtake the switch-out of a thread that is just going to sleep, and
 * the thread would count as asleep until it next runs. sched_wakeup comes in order; it is later
 * only by the time of an interprocessor interrupt.
 *
 * A thread that is on a CPU is not waiting for one: its wakeup changes nothing.
 */
SEC("tp_btf/sched_wakeup")
int BPF_PROG(on_wakeup, struct task_struct *task)
{
	if (!task->on_cpu)
		report(task, WOKEN);
	return 0;
}
