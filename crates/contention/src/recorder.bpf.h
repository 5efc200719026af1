/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/*
 * What recorder.bpf.c needs of the kernel, and nothing more.
 *
 * Instead of a dump of the whole vmlinux.h: preserve_access_index makes libbpf look up the real
 * offsets in the running kernel's BTF, so only the names and types of the fields used must be
 * right, not the layout.
 */
#pragma once

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed int __s32;
typedef signed long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef _Bool bool;

/* include/uapi/linux/bpf.h */
enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_RINGBUF = 27,
};
enum {
	BPF_RB_NO_WAKEUP = 1,
};

/* include/linux/sched.h; `__state` was `state` before 5.14. */
enum {
	TASK_RUNNING = 0x00,
	TASK_DEAD = 0x80,
};
struct sched_info {
	unsigned long long run_delay; /* with CONFIG_SCHED_INFO, which every distribution sets */
} __attribute__((preserve_access_index));
struct task_struct {
	unsigned int __state;
	int pid;
	int on_cpu;
	struct sched_info sched_info;
} __attribute__((preserve_access_index));

/* What the program reports. Rust reads it in recorder.rs (`parse`); both must agree. */
enum event_kind {
	SWITCHED_IN,
	SWITCHED_OUT_RUNNABLE,
	SWITCHED_OUT_ASLEEP,
	WOKEN,
	EXITED,
};
#define NOT_COUNTED (~0ULL)
struct event {
	__u64 ns;	 /* CLOCK_MONOTONIC */
	__u64 lost;	 /* events of this thread that found the ring full, so far */
	__u64 waited_ns; /* for CPUs in all its life, until it last got one; or NOT_COUNTED */
	__u32 tid;
	__u32 kind;
};
