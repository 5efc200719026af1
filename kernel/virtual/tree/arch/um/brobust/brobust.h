/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a virtual-time kernel and its controller share: one memory file, mapped by both.
 *
 * Only one of the two runs at a time. The kernel runs until it may go no further, writes a byte to
 * a pipe and waits for a byte; the controller reads what the kernel has left here, writes what
 * the kernel may do next, and answers with a byte. So nothing here needs a lock, and a side that
 * dies closes the pipes, which ends the other.
 *
 * crates/virtual/src/shared.rs is the same layout in Rust. BROBUST_ABI is raised with every change
 * of the layout, and both sides refuse another number. Times are nanoseconds of virtual time since
 * the kernel booted, sizes are bytes, costs are picoseconds of CPU time.
 *
 * Both kernel code and code that runs against the C library include this file, so it defines its
 * integer types itself.
 */
#ifndef BROBUST_H
#define BROBUST_H

#ifdef __UM_HOST__
#include <stdint.h>
typedef uint64_t u64;
typedef uint32_t u32;
typedef uint16_t u16;
#else
#include <linux/types.h>
#endif

#define BROBUST_MAGIC 0x00747375626f7262ULL /* "brobust" */
#define BROBUST_ABI 11

/* The first half of every node's IPv6 address, 2001:db8:: (RFC 3849). The node's number is the rest. */
#define BROBUST_IPV6_PREFIX 0x20010db800000000ULL

/*
 * What CLOCK_REALTIME is when virtual time begins, nanoseconds since 1970: 1 January 2027, 00:01:55.5 UTC. TCP's initial
 * sequence numbers come from this clock and have the same values again after 2^38 ns (net/core/secure_seq.c): this is a
 * multiple of it, so packets are those of a clock that begins at 0.
 */
#define BROBUST_CLOCK_STARTS (6543857ULL << 38)

#define BROBUST_WINDOWS 512
#define BROBUST_VCPUS 16
#define BROBUST_FLOWS 32768
#define BROBUST_PROGRAMS 1024
#define BROBUST_WORDS_BYTES 8192	 /* of a program's arguments and environment */
#define BROBUST_OUTPUT_BYTES (16U << 20) /* of a program's standard output and error */
#define BROBUST_TASKS 2048		 /* processes and threads of a kernel at a time */
#define BROBUST_FRAME_BYTES (4U << 20)	 /* each direction */
#define BROBUST_ACKS 16384

/* Why the kernel stopped. */
enum {
	BROBUST_READY = 1,   /* booted, and waits for the description of its node */
	BROBUST_HORIZON = 2, /* nothing to do before the horizon */
	BROBUST_DRAIN = 3,   /* a buffer is full; the horizon stays */
	BROBUST_REFUSED = 4, /* cannot become this node; `words` says why */
	BROBUST_STOPPED = 5, /* a program did what none may do; `words` says what */
};

enum {
	BROBUST_SENDER = 1,
	BROBUST_RECEIVER = 2,
	BROBUST_BOTTLENECK = 3, /* forwards, with a device that sends at `rate` */
};

/* The CPU may run from `begin` up to, not including, `end`. Windows are in order and do not
 * overlap. */
struct brobust_window {
	u64 begin, end;
};

/* When one of several vCPUs may run: what belongs to it waits for its windows. */
struct brobust_vcpu {
	u64 windows;
	struct brobust_window window[BROBUST_WINDOWS];
};

enum {
	BROBUST_BULK = 0,  /* as many bytes as there is room for, or so many bytes */
	BROBUST_RATE = 1,  /* so many bytes every so many ns */
	BROBUST_ONOFF = 2, /* bulk for a time, silent for a time, again and again */
	BROBUST_IDLE = 3,  /* bulk for a time, silent once for a time, then bulk */
};

/* A flow that this sender opens. Its number is its place in the array; its local port is
 * `first_port` + number, which is how the receiver knows it. Flows from `transfers_from` on are
 * transfers of the cross traffic, in the order of their starts: their sockets are gone when they have
 * written what they are to send, and nothing but their stats at the receiver is told of them. */
struct brobust_flow {
	u32 used;
	u32 pattern;
	u64 start, stop;
	u64 bytes_or_on_ns;   /* BROBUST_BULK: bytes, 0: no limit; _RATE: bytes; else ns of bulk */
	u64 period_or_off_ns; /* BROBUST_RATE: ns from one write to the next; else ns of silence */
	char cc[16];
};

/* A program of user space that runs at `start`. */
struct brobust_program {
	u64 start;
	u64 ended;		  /* when it has ended, from the kernel; 0: it has not */
	u32 status;		  /* how it has ended, as wait(2) tells it */
	u32 error;		  /* errno if it could not be started, or 0 */
	u32 arguments, variables; /* how many words there are of each */
	char words
	    [BROBUST_WORDS_BYTES]; /* path and arguments, then the environment; each ends with a zero */
};

/* What a flow has achieved so far; the flow's number is the place in the array, at either end. */
struct brobust_flow_stats {
	u64 received; /* payload received in order (receiver) */
	u64 ended;    /* when the last of it was, once the sender has ended it, or 0 (receiver) */
	u64 acked;    /* payload acknowledged (sender) */
	u64 sent;     /* payload handed down, retransmissions too (sender) */
	u64 idle;     /* ns for which pacing asked to wait after `paced` packets (sender) */
	u32 skbs, paced; /* TSO packets that `sent` counts, and those that were paced (sender) */
	u32 retransmits; /* segments (sender) */
	u32 error;	 /* errno that ended the flow, or 0 */
};

/* The head of a frame. It is followed by `header` bytes, from the Ethernet header on, and by
 * `payload` bytes; the rest of the frame is not carried, since nobody reads it. Records are
 * 8-byte aligned. */
struct brobust_frame {
	u64 time;     /* when it was sent, or arrives */
	u32 length;   /* of the whole frame, as on a wire without checksum and gap */
	u32 record;   /* of this record */
	u16 header;   /* bytes of headers that follow */
	u16 payload;  /* bytes of payload that follow the headers */
	u16 gso_size; /* payload per segment of a super-packet; 0 for an ordinary packet */
	u16 mark; /* by which the controller knows the packet that a bottleneck forwards, or 0 */
};

/* A socket right after an ACK was processed (tcp_ack). */
struct brobust_ack {
	u64 time;
	u64 pacing_rate; /* bytes/s */
	u64 bandwidth;	 /* BBR's estimate, bytes/s; 0 where the control shows none */
	u64 acked;	 /* payload so far */
	u32 flow;	 /* BROBUST_FLOWS: a socket of a program, which its addresses identify */
	u32 cwnd, ssthresh, inflight;	      /* packets */
	u32 delivered, lost, retransmits;     /* packets so far */
	u32 rate_delivered, rate_interval_us; /* latest delivery rate sample */
	u32 rtt_us, srtt_us, min_rtt_us;
	u32 bbr_min_rtt_us;
	u32 pacing_gain, cwnd_gain; /* 256 for 1; 0 where the control shows none */
	u32 deficits;		    /* ACKs at which a repair saw an inflight deficit */
	u32 mss;
	u32 remote; /* IPv4, host order; of IPv6 the node's number, or 0 */
	u16 local_port, remote_port;
	/* 0-3 ca_state, 4: rate sample was app-limited, 5: has `deficits` and 8-15: enum cc_mode */
	u32 flags;
};

/* A call of a program that has returned. The kernel writes it to the file of brobust_program_calls=. */
struct brobust_program_call {
	u64 begin, end;
	u64 result;	     /* of the call; as a number with a sign: an error below 0 */
	u32 process, thread; /* the same for a process with one thread */
	u32 number;	     /* of the call, as on x86-64 */
	char name[16];	     /* of the thread */
	u32 unused;
};

struct brobust_shared {
	u64 magic;
	u32 abi, size;

	/* The node, from the controller. */
	u64 seed;
	u32 role;
	u32 address, receiver; /* IPv4, host order; of IPv6 the numbers of the nodes */
	u32 first_port;
	u32 flows, transfers_from;
	u32 tcp_memory; /* upper limit of a socket's buffers, bytes */
	u64 tx_completion, coalesce;
	u32 tso_max_size;  /* what the network device takes at once, with headers, bytes */
	u32 rx_ring;	   /* packets that have arrived and wait for the kernel; 0: any number */
	u32 gro;	   /* merge the packets of an interrupt */
	u32 adaptive_rx;   /* let the kernel's lib/dim choose how long interrupts wait */
	u32 pacing_lag_us; /* net.ipv4.tcp_pacing_lag_us, as that of kernel/patches/kept */
	u32 every_ack;	   /* record every ACK; else, between two stops, a flow's last */
	u32 ip_version;	   /* 4 or 6: the kernel has no other */
	u64 timer_cost, rx_packet_cost, tx_skb_cost, tx_byte_cost;
	char qdisc[16];
	char commands[2048]; /* rtnetlink messages, for a bottleneck's queueing discipline */
	u32 commands_size;
	u32 carry_payload;
	u32 ecn;      /* ask for ECN (RFC 3168) */
	u32 programs; /* how many; if any, they send and receive instead of source and sink */
	u64 call_cost, poll_cost; /* of a program's system call; of one that polls */
	u32 vcpus;		  /* how many; with one, nothing below is looked at */
	u32 rx_vcpu, tx_vcpu; /* to which packets that arrive, and those that were sent, belong */

	/* What it may do next, from the controller. */
	u64 horizon;
	u64 rate; /* of a bottleneck's device, bit/s */
	u32 windows;
	u32 rx_bytes;
	struct brobust_window window[BROBUST_WINDOWS]; /* of all vCPUs together */
	struct brobust_vcpu vcpu[BROBUST_VCPUS];

	/* Where it stands, from the kernel. */
	u32 reason;
	u32 tx_bytes;
	u32 acks;
	u32 running;   /* how many programs have not ended */
	u64 now, next; /* `next`: when the kernel will next do something by itself; ~0: never */
	u64 timers, rx_packets, tx_skbs, charged; /* counts; `charged`: CPU time in ns */
	u64 interrupts,
	    rx_dropped; /* of the device: those that it raised; packets it had no room for */
	char words[256];

	struct brobust_flow flow[BROBUST_FLOWS];
	struct brobust_flow_stats stats[BROBUST_FLOWS];
	struct brobust_program program[BROBUST_PROGRAMS];
	struct brobust_ack ack[BROBUST_ACKS];
	unsigned char tx[BROBUST_FRAME_BYTES];
	unsigned char rx[BROBUST_FRAME_BYTES];
};

/* host.c: runs against the C library */
extern struct brobust_shared *brobust; /* NULL: an ordinary UML kernel */
int brobust_map_memory(void *at, int file, unsigned long long offset, unsigned long size, int r,
		       int w, int x); /* called by physmem.c */
void brobust_host_sync(void);
long brobust_host_random(void *buffer, unsigned long size);
void brobust_host_print(const void *text, unsigned long size);
int brobust_host_records_calls(void);
void brobust_host_record_call(const void *call, unsigned long size);
int brobust_host_records_program_calls(void);
void brobust_host_record_program_call(const struct brobust_program_call *call);

/* What work.c reads: ps, ps and ns of CPU time. */
extern unsigned long brobust_sent_byte_ps, brobust_received_byte_ps, brobust_accept_ns;

/* clock.c */
int brobust_advance_to(unsigned long long event, unsigned long long *now);
void brobust_charge_cpu(u64 picoseconds);
void brobust_timer_fires(void); /* called by hrtimer.c */
void brobust_sync(u32 reason);

/* programs.c */
unsigned long long brobust_program_calls(void); /* called by syscall.c */
void brobust_program_called(int syscall, long result,
			    unsigned long long begun); /* called by syscall.c */
void brobust_program_continues(void);		       /* called by ptrace.c */

/* ptrace.c */
void brobust_read_fpu(void); /* called by signal.c and programs.c */

#endif
