/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/*
 * The contract between a congestion control and the host that runs it.
 *
 * A control is a few functions over plain structs: what the stack knows of the connection
 * (struct cc_connection), what one ACK told (struct cc_sample), and the control's own state. It
 * answers by writing cwnd, pacing rate and slow-start threshold into the connection. No I/O, no
 * clock of its own, no floating point, no loop without a bound. So the same file runs
 *
 *	as BPF		bpf/control.h		struct_ops of a running kernel
 *	as a module	kernel/control/control.h	built into a kernel, or a .ko
 *	on its own	crates/cc/host/control.h	unit tests, replay, fuzzing
 *
 * and a difference in behaviour between the three is a bug.
 *
 * One control is one file, cc/controls/NAME.c. It defines CC_NAME, struct control and the functions
 * below, which are all static and are called with the socket locked, and includes "control.h" last:
 * that is the host's part.
 *
 *	control_init(conn, control)		a socket takes the control; *control is all zero
 *	control_on_ack(conn, sample, control)	an ACK was processed, and it decides cwnd and rate
 *	control_ssthresh(conn, control)		loss: answers the new slow-start threshold
 *	control_undo_cwnd(conn, control)	the loss was none: answers the cwnd to return to
 *	control_min_tso_segs(pacing_rate)	least packets of one burst
 *	control_sndbuf_expand()			send buffer as a multiple of cwnd
 *	control_report(conn, control, report)	tell users what it believes (struct cc_report)
 *
 * and, where it also defines the macro:
 *
 *	CC_SET_STATE	control_set_state(conn, state, control)	the stack enters enum cc_ca_state
 *	CC_ON_EVENT	control_on_event(conn, event, control)	enum cc_event
 *	CC_ON_SEND	control_on_send(conn, control)		a pass of the write loop begins
 *
 * Of cwnd and rate, control_on_send may set the rate only.
 *
 * A control that leaves rate and recovery to the stack (Reno, CUBIC) defines CC_WINDOW_BASED and,
 * in place of control_on_ack, control_min_tso_segs and control_sndbuf_expand:
 *
 *			control_on_acked(conn, acked, control)	packets ACKed outside recovery
 *	CC_ON_RTT	control_on_rtt(conn, rtt_us, control)	an RTT sample; before the former
 *
 * If it has control_on_send, which may give another rate than the stack's, it also has
 * control_min_tso_segs.
 *
 * docs/algorithms.md shows how to write one.
 */
#ifndef BROBUST_CC_H
#define BROBUST_CC_H

#include "cc_host.h" /* u8 … s64, bool, CC_PARAM: each host has its own */

/*
 * A parameter: a constant of an algorithm that can be given another value when it is loaded.
 *
 *	CC_PARAM(name, value, least, most, unit, "what it is")
 *
 * unit, in which people give it and in which it is kept:
 *
 *	CC_GAIN			1 for 256	CC_PACKETS, CC_ROUNDS	1 for 1
 *	CC_PER_1024		1 for 1024	CC_SWITCH		on, off for 1, 0
 *	CC_TIMES		1 for 1
 *	CC_PERCENT, CC_PERMILLE	1 for 1		CC_BITS_PER_SECOND	bit/s
 *	CC_MICROSECONDS, CC_MILLISECONDS, CC_SECONDS: a time, in these
 */
#define CC_USEC_PER_SEC 1000000U
#define CC_USEC_PER_MSEC 1000U
#define CC_INIT_CWND 10U		 /* TCP_INIT_CWND, RFC 6928 */
#define CC_INFINITE_SSTHRESH 0x7fffffffU /* TCP_INFINITE_SSTHRESH */
#define CC_NO_RTT (~0U)

#define CC_UNUSED __attribute__((unused))
#define CC_INLINE static inline __attribute__((always_inline, unused))

/* icsk_ca_state, include/uapi/linux/tcp.h */
enum cc_ca_state {
	CC_CA_OPEN,
	CC_CA_DISORDER,
	CC_CA_CWR,
	CC_CA_RECOVERY,
	CC_CA_LOSS,
};

/* enum tcp_ca_event, include/net/tcp.h */
enum cc_event {
	CC_EVENT_TX_START, /* about to send with nothing in flight */
	CC_EVENT_CWND_RESTART,
	CC_EVENT_COMPLETE_CWR,
	CC_EVENT_LOSS,
	CC_EVENT_ECN_NO_CE,
	CC_EVENT_ECN_IS_CE,
};

/*
 * The connection as the stack knows it, in the names of this field where it has one and of struct
 * tcp_sock otherwise. Packets are segments of the connection's MSS.
 */
struct cc_connection {
	u64 now_us;	     /* µs, monotonic: the ACK, or the event, that is being processed */
	u64 delivered_us;    /* µs: when "delivered" last grew */
	u64 clock_ns;	     /* ns: the send path's clock; compare departure_ns only */
	u64 departure_ns;    /* ns: earliest departure of the next packet by the pacing schedule */
	u64 max_pacing_rate; /* bytes/s; ~0 without SO_MAX_PACING_RATE */
	u32 now_ticks;	     /* jiffies, wrapping */
	u32 tick_hz;	     /* jiffies per second */
	u32 last_sent_ticks; /* jiffies: when data was last sent */
	u32 delivered;	     /* packets, since the connection began, wrapping */
	u32 lost;	     /* packets marked lost since it began, wrapping */
	u32 in_flight;	     /* packets in the network: sent, and not known delivered or lost */
	u32 unsent_bytes;    /* written by the application, not sent for the first time */
	u32 mss;	     /* bytes of payload in a packet */
	u32 srtt_us_8;	     /* µs, 8 times the smoothed RTT; 0 without a sample */
	u32 min_rtt_us;	     /* µs, of the stack's own filter; CC_NO_RTT without a sample */
	u32 snd_una;	     /* sequence number of the first byte not acknowledged */
	u32 snd_nxt;	     /* ... of the next byte to send */
	u32 receiver_room;   /* bytes beyond snd_nxt that the receiver's window admits */
	u32 cwnd_clamp;	     /* packets */
	u32 prior_cwnd;	     /* packets: cwnd when the stack last began to recover */
	u32 gso_max_size;    /* bytes of one burst, by the device */
	u32 tso_max_bytes;   /* bytes of payload in one burst, by the stack */
	u8 pacing_shift;     /* a burst is to last 1 s >> this */
	u8 ca_state;	     /* enum cc_ca_state */
	u8 is_cwnd_limited;  /* cwnd holds sending back (tcp_is_cwnd_limited) */
	u8 is_paced;	     /* by the stack or by fq */

	/* The control's to write as well: */
	u8 wants_pacing;  /* ask the stack to pace this connection; set in control_init() only */
	u8 pacing_stride; /* bursts so many times as large; as above, and of our own kernels only */
	u8 random_draws;  /* how many of "random" are used */
	u64 pacing_rate;  /* bytes/s */
	u32 cwnd;	  /* packets, at least 1 */
	u32 cwnd_count;	  /* packets acknowledged towards the next step of cwnd (Reno, CUBIC) */
	u32 ssthresh;	  /* packets */
	u32 app_limited;  /* 0, or the value of "delivered" that ends the application's limit */
	u32 random[4];	  /* what cc_random_below() answered in this call, for replay */
};

/* What one ACK told: struct rate_sample of the kernel (net/ipv4/tcp_rate.c), its fields. */
struct cc_sample {
	s64 interval_us;     /* µs over which "delivered" grew by "delivered"; <= 0: no sample */
	s64 rtt_us;	     /* µs; < 0: none */
	u32 prior_delivered; /* conn->delivered when the newest acknowledged packet was sent */
	s32 delivered;	     /* packets delivered since then; < 0: no sample */
	s32 losses;	     /* packets marked lost by this ACK */
	u32 acked_sacked;    /* packets newly acknowledged or SACKed */
	u32 prior_in_flight; /* packets in flight before this ACK */
	u8 is_app_limited;   /* the newest acknowledged packet was sent while data was short */
	u8 is_retrans;	     /* ... was a retransmission */
	u8 is_ack_delayed;   /* the receiver is likely to have held this ACK back */
};

/* Where an algorithm is. One list for all, so that a number has one name everywhere. */
enum cc_mode {
	CC_MODE_STARTUP, /* the first four as in tcp_bbr.c */
	CC_MODE_DRAIN,
	CC_MODE_PROBE_BW,
	CC_MODE_PROBE_RTT,
	CC_MODE_PROBE_BW_UP,
	CC_MODE_PROBE_BW_DOWN,
	CC_MODE_PROBE_BW_CRUISE,
	CC_MODE_PROBE_BW_REFILL,
	CC_MODE_SLOW_START,
	CC_MODE_AVOIDANCE,
};

/*
 * What a control tells of itself. Begins as struct tcp_bbr_info (include/uapi/linux/inet_diag.h),
 * and may only grow at its end. Read by crates/sockdiag/src/bbr_info.rs.
 */
struct cc_report {
	u64 bandwidth;	  /* bytes of payload per second; 0 without an estimate */
	u32 min_rtt_us;	  /* CC_NO_RTT: no sample yet */
	u32 pacing_gain;  /* << 8, as applied; 0 where there is none */
	u32 cwnd_gain;	  /* << 8 */
	u32 mode;	  /* enum cc_mode */
	u64 acks;	  /* ACKs processed */
	u64 deficit_acks; /* ... and found with too little in flight */
};

/* An even draw from 0 to below - 1; each host has its own source. At most four in a call. */
CC_INLINE u32 cc_random_below(struct cc_connection *conn, u32 below);

CC_INLINE u32 cc_min(u32 a, u32 b)
{
	return a < b ? a : b;
}

CC_INLINE u32 cc_max(u32 a, u32 b)
{
	return a > b ? a : b;
}

CC_INLINE u64 cc_min64(u64 a, u64 b)
{
	return a < b ? a : b;
}

CC_INLINE u64 cc_max64(u64 a, u64 b)
{
	return a > b ? a : b;
}

/* Of two wrapping counters (sequence numbers, jiffies, packets delivered): a is later than b. */
CC_INLINE bool cc_after(u32 a, u32 b)
{
	return (s32)(b - a) < 0;
}

/* How many bits a number has: 0 for 0. BPF has no instruction for it, and clang 14 no patience. */
CC_INLINE u32 cc_bits(u64 number)
{
	u32 bits = 0;

	for (u32 half = 32; half; half >>= 1) {
		if (number >> half) {
			number >>= half;
			bits += half;
		}
	}
	return bits + (number ? 1 : 0);
}

/* As msecs_to_jiffies(): rounded up. */
CC_INLINE u32 cc_ms_to_ticks(const struct cc_connection *conn, u32 ms)
{
	return (u32)(((u64)ms * conn->tick_hz + 999) / 1000);
}

/* Microseconds from b to a; 0 if a is the earlier (tcp_stamp_us_delta). */
CC_INLINE u32 cc_us_since(u64 a, u64 b)
{
	return (s64)(a - b) > 0 ? (u32)(a - b) : 0;
}

CC_INLINE bool cc_in_slow_start(const struct cc_connection *conn)
{
	return conn->cwnd < conn->ssthresh;
}

#endif
