/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/*
 * A control of cc/controls as a kernel module, or built in. Such a file includes this at its end;
 * cc/cc.h tells what it has defined.
 *
 * A socket's private area holds a pointer to the state: versions 2 and 3 of BBR are larger than the
 * area. Beside it is what get_info says. Who asks for that does not hold the socket: the state may
 * be freed meanwhile, or the area be another control's, so that the pointer must not be followed.
 */
#include <linux/inet_diag.h>
#include <linux/slab.h>

#include "../../call.h"
#include "kernel.h"

struct socket_state {
	struct cc_report report;
	struct cc_connection conn;
	struct control control;
	u32 records;
};

struct socket_area {
	struct socket_state *state;
	struct tcp_bbr_info info;
};

static inline struct socket_area *area_of(const struct sock *sk)
{
	return inet_csk_ca(sk);
}

static inline struct socket_state *state_of(struct sock *sk)
{
	return area_of(sk)->state;
}

static inline void set_state(struct sock *sk, struct socket_state *state)
{
	area_of(sk)->state = state;
	area_of(sk)->info = (struct tcp_bbr_info){};
}

static struct socket_state *make_state(struct sock *sk)
{
	set_state(sk, kzalloc(sizeof(struct socket_state), GFP_ATOMIC | __GFP_NOWARN));
	return state_of(sk);
}

/* The area of a socket that is new to this control may hold anything. */
static inline void forget_state(struct sock *sk)
{
	set_state(sk, NULL);
}

static inline u32 random_below(u32 below)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 2, 0)
	return get_random_u32_below(below);
#else
	return prandom_u32_max(below);
#endif
}

/* The kernel of virtual time has its own of these; elsewhere nobody listens. */
void __weak brobust_note_report(struct sock *sk, u64 deficit_acks, u32 mode)
{
}

bool __weak brobust_records_calls(void)
{
	return false;
}

void __weak brobust_note_call(const struct cc_call *call)
{
}

#define records_calls brobust_records_calls()

static noinline void record(struct sock *sk, struct socket_state *state, u32 kind, u64 value,
			    const struct cc_sample *sample)
{
	struct cc_call call;

	memset(&call, 0, sizeof(call)); /* its padding as well */
	call.socket = (unsigned long)sk;
	call.number = state->records++;
	cc_fill_call(&call, kind, value, &state->conn, sample, &state->report);
	brobust_note_call(&call);
}

static inline void note_report(struct sock *sk, const struct cc_report *report)
{
	area_of(sk)->info = (struct tcp_bbr_info){
	    .bbr_bw_lo = lower_32_bits(report->bandwidth),
	    .bbr_bw_hi = upper_32_bits(report->bandwidth),
	    .bbr_min_rtt = report->min_rtt_us,
	    .bbr_pacing_gain = report->pacing_gain,
	    .bbr_cwnd_gain = report->cwnd_gain,
	};
	brobust_note_report(sk, report->deficit_acks, report->mode);
}

static void on_release(struct sock *sk)
{
	kfree(state_of(sk));
	set_state(sk, NULL);
}

#ifdef CC_WINDOW_BASED
#define HOST_OPERATIONS OWN_OPERATIONS
#else
#define HOST_OPERATIONS OWN_OPERATIONS, OPERATION(get_info)

/* As the kernel's own BBR, so that `ss -i` shows the model. */
static size_t on_get_info(struct sock *sk, u32 ext, int *attribute, union tcp_cc_info *info)
{
	if (!(ext & (1 << (INET_DIAG_BBRINFO - 1) | 1 << (INET_DIAG_VEGASINFO - 1))))
		return 0;
	info->bbr = area_of(sk)->info;
	*attribute = INET_DIAG_BBRINFO;
	return sizeof(info->bbr);
}
#endif

#define OPERATIONS PASTE(CC_NAME, _operations) __read_mostly
#define OPERATION(field) .field = on_##field
#define OWN_OPERATIONS .flags = TCP_CONG_NON_RESTRICTED, .owner = THIS_MODULE, OPERATION(release)

#include "../callbacks.h"

static int __init control_register(void)
{
	BUILD_BUG_ON(sizeof(struct socket_area) > ICSK_CA_PRIV_SIZE);
	return tcp_register_congestion_control(&PASTE(CC_NAME, _operations));
}

static void __exit control_unregister(void)
{
	tcp_unregister_congestion_control(&PASTE(CC_NAME, _operations));
}

module_init(control_register);
module_exit(control_unregister);

MODULE_LICENSE("Dual BSD/GPL");
MODULE_DESCRIPTION("TCP congestion control " NAME(CC_NAME) " of brobust");
