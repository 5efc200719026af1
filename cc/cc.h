/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/*
 * The contract between a congestion control and the host that runs it.
 *
 * A control is a few functions over plain structs: what the stack knows about the connection
 * (struct cc_connection), what one ACK showed (struct cc_sample), and the control's own state. It
 * answers by writing cwnd, pacing rate and slow-start threshold into the connection. A control does
 * no I/O, has no clock, no floating point and no loop without a bound. So the same file runs
 *
 *	as BPF		cc/hosts/bpf		struct_ops of a running kernel
 *	as a module	cc/hosts/module		built into a kernel, or a .ko
 *	in a program	cc/hosts/program	unit tests, replay, fuzzing
 *
 * and a difference in behaviour between the three is a bug.
 *
 * One control is one file, cc/controls/NAME.c. It defines CC_NAME, struct control and the functions
 * below, which are all static and are called with the socket locked. At its end it includes
 * "control.h", which is the host's part.
 *
 *	control_init(conn, control)		called when a socket takes the control, with
 *						*control all zero
 *	control_on_ack(conn, sample, control)	called after each ACK, to set cwnd and rate
 *	control_ssthresh(conn, control)		called at a loss; returns the new slow-start
 *						threshold
 *	control_undo_cwnd(conn, control)	called when a loss turns out to be none; returns
 *						the cwnd to go back to
 *	control_min_tso_segs(pacing_rate)	returns the minimum of packets in a burst
 *	control_sndbuf_expand()			returns the send buffer as a multiple of cwnd
 *	control_report(conn, control, report)	fills in what users see (struct cc_report)
 *
 * and, if the control also defines the macro on the left:
 *
 *	CC_SET_STATE	control_set_state(conn, state, control)	called when the stack enters a state
 *								of enum cc_ca_state
 *	CC_ON_EVENT	control_on_event(conn, event, control)	called at an event of enum cc_event
 *	CC_ON_SEND	control_on_send(conn, control)		called when a pass of the write loop
 *								begins; may set the rate, not cwnd
 *	CC_ON_LOST	control_on_lost(conn, packet, control)	called when a packet is marked lost, if
 *								the stack tells of it (see cc_sample)
 *	CC_BURSTS	control_burst(conn, mss, control)	returns the packets of a burst, for a
 *								stack that leaves the size to controls
 *
 * A control that leaves rate and recovery to the stack (Reno, CUBIC) defines CC_WINDOW_BASED. In
 * place of control_on_ack, control_min_tso_segs and control_sndbuf_expand it has:
 *
 *			control_on_acked(conn, acked, control)	called with packets that were ACKed
 *								outside of recovery
 *	CC_ON_RTT	control_on_rtt(conn, rtt_us, control)	called with each RTT sample, before
 *								control_on_acked
 *
 * If such a control has control_on_send, which may set another rate than the stack's, it also has
 * control_min_tso_segs.
 *
 * docs/algorithms.md shows how to write one.
 */
#ifndef BROBUST_CC_H
#define BROBUST_CC_H

#include "cc_host.h" /* u8 … s64, bool and CC_PARAM, which each host defines */

/*
 * A parameter is a constant of an algorithm that can get another value when the control is loaded.
 *
 *	CC_PARAM(name, value, minimum, maximum, unit, "what it is")
 *
 * The unit tells how people write the value, and which number is kept for it:
 *
 *	CC_GAIN			1 for 256	CC_PACKETS, CC_ROUNDS	1 for 1
 *	CC_PER_1024		1 for 1024	CC_SWITCH		on, off for 1, 0
 *	CC_TIMES		1 for 1
 *	CC_PERCENT, CC_PERMILLE	1 for 1		CC_BITS_PER_SECOND	bit/s
 *	CC_MICROSECONDS, CC_MILLISECONDS, CC_SECONDS	a time; the number of these
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
	/* google's stack, version 3: a tail loss probe has repaired a loss; the second, where the
	 * application was the limit when the lost packet was first sent. */
	CC_EVENT_TLP_RECOVERY,
	CC_EVENT_TLP_RECOVERY_APP_LIMITED,
};

/*
 * The connection as the stack knows it. Names are the research field's where it has one, otherwise
 * those of struct tcp_sock. Packets are segments of the connection's MSS.
 */
struct cc_connection {
	u64 now_us;	     /* µs, monotonic: time of the ACK or event that is being processed */
	u64 delivered_us;    /* µs: when "delivered" last grew */
	u64 clock_ns;	     /* ns: the send path's clock; comparable with departure_ns only */
	u64 departure_ns;    /* ns: earliest departure of the next packet by the pacing schedule */
	u64 max_pacing_rate; /* bytes/s; ~0 without SO_MAX_PACING_RATE */
	u32 now_ticks;	     /* jiffies, wrapping */
	u32 tick_hz;	     /* jiffies per second */
	u32 last_sent_ticks; /* jiffies: when data was last sent */
	u32 delivered;	     /* packets, since the connection began, wrapping */
	u32 lost;	     /* packets marked lost since it began, wrapping */
	u32 in_flight;	     /* packets in the network: sent, and not known as delivered or lost */
	u32 unsent_bytes;    /* written by the application and not yet sent */
	u32 mss;	     /* bytes of payload in a packet */
	u32 srtt_us_8;	     /* µs, 8 times the smoothed RTT; 0 without a sample */
	u32 min_rtt_us;	     /* µs, of the stack's own filter; CC_NO_RTT without a sample */
	u32 snd_una;	     /* sequence number of the first byte not acknowledged */
	u32 snd_nxt;	     /* sequence number of the next byte to send */
	u32 receiver_room;   /* bytes beyond snd_nxt that the receiver's window admits */
	u32 cwnd_clamp;	     /* packets */
	u32 prior_cwnd;	     /* packets: cwnd when the stack last began to recover */
	u32 gso_max_size;    /* bytes of one burst, by the device */
	u32 tso_max_bytes;   /* bytes of payload in one burst, by the stack */
	u32 gso_limit;	 /* bytes: the largest burst of any device (GSO_MAX_SIZE); 64 KiB, or more
			      * beside google's version 2 on Linux 5.19 and later */
	u8 pacing_shift; /* a burst lasts 1 s >> this */
	u8 ca_state;	 /* enum cc_ca_state */
	u8 is_cwnd_limited; /* cwnd limits sending (tcp_is_cwnd_limited) */
	u8 is_paced;	    /* by the stack or by fq */
	u8 cwnd_was_full;   /* the last window was sent whole: as above without slow start's rule */

	/* The control may write these too: */
	u8 wants_pacing;  /* asks the stack to pace this connection; set in control_init() only */
	u8 pacing_stride; /* bursts this many times as large; as above, in virtual time only */
	u8 random_draws;  /* how many numbers of "random" are used */
	u64 pacing_rate;  /* bytes/s */
	u32 cwnd;	  /* packets, at least 1 */
	u32 cwnd_count;	  /* packets acknowledged towards the next step of cwnd (Reno, CUBIC) */
	u32 ssthresh;	  /* packets */
	u32 app_limited;  /* 0, or the value of "delivered" that ends the application's limit */
	u32 random[4];	  /* what cc_random_below() returned in this call, for replay */
};

/*
 * What one ACK showed: the fields of the kernel's struct rate_sample (net/ipv4/tcp_rate.c).
 *
 * google's kernels keep with each packet what was in flight and lost when it was sent: there
 * tells_losses is set, and control_on_lost() is called for each lost packet, with a sample of which
 * only losses (its packets), lost, tx_in_flight, is_app_limited and tells_losses (0: nothing is
 * known of that packet) count.
 */
struct cc_sample {
	s64 interval_us;     /* µs in which "delivered" packets were delivered; <= 0: no sample */
	s64 rtt_us;	     /* µs; < 0: none */
	u32 prior_delivered; /* conn->delivered when the newest acknowledged packet was sent */
	s32 delivered;	     /* packets delivered since that packet was sent; < 0: no sample */
	s32 losses;	     /* packets marked lost by this ACK */
	u32 acked_sacked;    /* packets newly acknowledged or SACKed */
	u32 prior_in_flight; /* packets in flight before this ACK */
	s32 lost;	     /* packets marked lost since the newest acknowledged packet was sent */
	u32 tx_in_flight;    /* packets in flight when that was sent, itself included; 0: unknown */
	u8 is_app_limited; /* the application was the limit when the newest ACKed packet was sent */
	u8 is_retrans;	   /* the newest ACKed packet was a retransmission */
	u8 is_ack_delayed; /* the receiver has probably delayed this ACK */
	u8 tells_losses;   /* lost and tx_in_flight are the stack's */
	u8 is_acking_probe; /* nobody knows yet whether it ACKs a tail loss probe or the original */
};

/* The mode of an algorithm. One list for all algorithms gives each number one name everywhere. */
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
 * What a control reports to users. It begins like struct tcp_bbr_info
 * (include/uapi/linux/inet_diag.h) and may only grow at its end. crates/sockdiag/src/bbr_info.rs
 * reads it.
 */
struct cc_report {
	u64 bandwidth;	  /* bytes of payload per second; 0 without an estimate */
	u32 min_rtt_us;	  /* CC_NO_RTT: no sample yet */
	u32 pacing_gain;  /* << 8, as applied; 0 where the control has none */
	u32 cwnd_gain;	  /* << 8 */
	u32 mode;	  /* enum cc_mode */
	u64 acks;	  /* ACKs processed */
	u64 deficit_acks; /* ACKs at which a repair found too little in flight */
};

/* Return a uniform draw from 0 to below - 1. Each host has its own source. At most four in a
 * call. */
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

/* Return whether a is later than b, for counters that wrap (sequence numbers, jiffies, packets). */
CC_INLINE bool cc_after(u32 a, u32 b)
{
	return (s32)(b - a) < 0;
}

/* Return how many bits a number has, 0 for 0. BPF has no instruction for it. */
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

/* Return milliseconds in jiffies, rounded up like msecs_to_jiffies(). */
CC_INLINE u32 cc_ms_to_ticks(const struct cc_connection *conn, u32 ms)
{
	return (u32)(((u64)ms * conn->tick_hz + 999) / 1000);
}

/* Return the microseconds from b to a, or 0 if a is earlier (tcp_stamp_us_delta). */
CC_INLINE u32 cc_us_since(u64 a, u64 b)
{
	return (s64)(a - b) > 0 ? (u32)(a - b) : 0;
}

CC_INLINE bool cc_in_slow_start(const struct cc_connection *conn)
{
	return conn->cwnd < conn->ssthresh;
}

#endif
