/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/*
 * A control of cc/controls as a kernel module, or built in. Included at the end of such a file;
 * cc/cc.h tells what it has defined.
 *
 * A socket's private area holds a pointer to the state: versions 2 and 3 of BBR are larger than
 * the area. Without memory for the state the window stays as it is until there is some.
 */
#include <linux/inet_diag.h>
#include <linux/slab.h>
#include <net/tcp.h>

#include "cc/call.h"
#include "connection.h"

struct socket_state {
	struct cc_report report;
	struct control control;
	u32 records;
};

CC_INLINE u32 cc_random_below(struct cc_connection *conn, u32 below)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 2, 0)
	u32 random = get_random_u32_below(below);
#else
	u32 random = prandom_u32_max(below);
#endif

	conn->random[conn->random_draws & 3] = random;
	conn->random_draws++;
	return random;
}

static struct socket_state **state_in(struct sock *sk)
{
	return inet_csk_ca(sk);
}

/* The kernel of the virtual backend listens to these; elsewhere nobody does. */
void __weak brobust_note_report(struct sock *sk, u64 deficit_acks, u32 mode);
void __weak brobust_note_report(struct sock *sk, u64 deficit_acks, u32 mode)
{
}

bool __weak brobust_records_calls(void);
bool __weak brobust_records_calls(void)
{
	return false;
}

void __weak brobust_note_call(const struct cc_call *call);
void __weak brobust_note_call(const struct cc_call *call)
{
}

static void record(struct sock *sk, const struct cc_connection *conn, struct socket_state *state,
		   u32 kind, u64 value, const struct cc_sample *sample)
{
	struct cc_call call;

	memset(&call, 0, sizeof(call));
	call.socket = (unsigned long)sk;
	call.number = state->records++;
	call.kind = kind;
	call.value = value;
	call.conn = *conn;
	if (sample)
		call.sample = *sample;
	call.report = state->report;
	brobust_note_call(&call);
}

/* Around every call of the control. */
static void begin_call(struct sock *sk, struct cc_connection *conn, struct socket_state *state,
		       u32 kind, u64 value, const struct cc_sample *sample)
{
	load_connection(sk, conn);
	if (brobust_records_calls())
		record(sk, conn, state, kind, value, sample);
}

static void end_call(struct sock *sk, const struct cc_connection *conn, struct socket_state *state,
		     u64 answer)
{
	store_connection(sk, conn);
	if (brobust_records_calls())
		record(sk, conn, state, CC_CALL_RETURN, answer, NULL);
}

static struct socket_state *new_state(struct sock *sk)
{
	struct socket_state *state = kzalloc(sizeof(*state), GFP_ATOMIC | __GFP_NOWARN);
	struct cc_connection conn;

	*state_in(sk) = state;
	if (!state)
		return NULL;
	begin_call(sk, &conn, state, CC_CALL_INIT, 0, NULL);
	control_init(&conn, &state->control);
	end_call(sk, &conn, state, 0);
	return state;
}

static void on_init(struct sock *sk)
{
	new_state(sk);
}

static void on_release(struct sock *sk)
{
	kfree(*state_in(sk));
	*state_in(sk) = NULL;
}

static void report(struct sock *sk, const struct cc_connection *conn, struct socket_state *state)
{
	state->report.acks++;
	control_report(conn, &state->control, &state->report);
	brobust_note_report(sk, state->report.deficit_acks, state->report.mode);
}

#ifdef CC_WINDOW_BASED

static void on_cong_avoid(struct sock *sk, u32 ack, u32 acked)
{
	struct socket_state *state = *state_in(sk) ?: new_state(sk);
	struct cc_connection conn;

	if (!state)
		return;
	begin_call(sk, &conn, state, CC_CALL_ON_ACKED, acked, NULL);
	control_on_acked(&conn, acked, &state->control);
	report(sk, &conn, state);
	end_call(sk, &conn, state, 0);
}

#ifdef CC_ON_RTT
static void on_pkts_acked(struct sock *sk, const struct ack_sample *sample)
{
	struct socket_state *state = *state_in(sk);
	struct cc_connection conn;

	if (!state || sample->rtt_us < 0)
		return;
	begin_call(sk, &conn, state, CC_CALL_ON_RTT, sample->rtt_us, NULL);
	control_on_rtt(&conn, sample->rtt_us, &state->control);
	end_call(sk, &conn, state, 0);
}
#endif

#else

static void on_ack(struct sock *sk, const struct rate_sample *rs)
{
	struct socket_state *state = *state_in(sk) ?: new_state(sk);
	const struct cc_sample sample = sample_of(rs);
	struct cc_connection conn;

	if (!state)
		return;
	begin_call(sk, &conn, state, CC_CALL_ON_ACK, 0, &sample);
	control_on_ack(&conn, &sample, &state->control);
	report(sk, &conn, state);
	end_call(sk, &conn, state, 0);
}

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 10, 0)
static void on_cong_control(struct sock *sk, u32 ack, int flag, const struct rate_sample *rs)
{
	on_ack(sk, rs);
}
#else
static void on_cong_control(struct sock *sk, const struct rate_sample *rs)
{
	on_ack(sk, rs);
}
#endif

static u32 on_sndbuf_expand(struct sock *sk)
{
	return control_sndbuf_expand();
}

/* As the kernel's own BBR, so that `ss -i` shows the model. */
static size_t on_get_info(struct sock *sk, u32 ext, int *attribute, union tcp_cc_info *info)
{
	const struct socket_state *state = *state_in(sk);

	if (!state || !(ext & (1 << (INET_DIAG_BBRINFO - 1) | 1 << (INET_DIAG_VEGASINFO - 1))))
		return 0;
	info->bbr = (struct tcp_bbr_info){
	    .bbr_bw_lo = lower_32_bits(state->report.bandwidth),
	    .bbr_bw_hi = upper_32_bits(state->report.bandwidth),
	    .bbr_min_rtt = state->report.min_rtt_us,
	    .bbr_pacing_gain = state->report.pacing_gain,
	    .bbr_cwnd_gain = state->report.cwnd_gain,
	};
	*attribute = INET_DIAG_BBRINFO;
	return sizeof(info->bbr);
}

#endif

#if !defined(CC_WINDOW_BASED) || defined(CC_ON_SEND)
/* Asked at each pass of the stack's write loop, before it looks at the rate. */
static u32 on_min_tso_segs(struct sock *sk)
{
#ifdef CC_ON_SEND
	struct socket_state *state = *state_in(sk);
	struct cc_connection conn;

	if (state) {
		begin_call(sk, &conn, state, CC_CALL_ON_SEND, 0, NULL);
		control_on_send(&conn, &state->control);
		end_call(sk, &conn, state, 0);
	}
#endif
	return control_min_tso_segs(READ_ONCE(sk->sk_pacing_rate));
}
#endif

#ifdef CC_SET_STATE
static void on_set_state(struct sock *sk, u8 new_state)
{
	struct socket_state *state = *state_in(sk);
	struct cc_connection conn;

	if (!state)
		return;
	begin_call(sk, &conn, state, CC_CALL_SET_STATE, new_state, NULL);
	control_set_state(&conn, new_state, &state->control);
	end_call(sk, &conn, state, 0);
}
#endif

#ifdef CC_ON_EVENT
static void on_cwnd_event(struct sock *sk, enum tcp_ca_event event)
{
	struct socket_state *state = *state_in(sk);
	struct cc_connection conn;

	if (!state)
		return;
	begin_call(sk, &conn, state, CC_CALL_ON_EVENT, event, NULL);
	control_on_event(&conn, event, &state->control);
	end_call(sk, &conn, state, 0);
}
#endif

static u32 on_ssthresh(struct sock *sk)
{
	struct socket_state *state = *state_in(sk);
	struct cc_connection conn;
	u32 ssthresh;

	if (!state)
		return max(tcp_snd_cwnd(tcp_sk(sk)) / 2, 2U);
	begin_call(sk, &conn, state, CC_CALL_SSTHRESH, 0, NULL);
	ssthresh = control_ssthresh(&conn, &state->control);
	end_call(sk, &conn, state, ssthresh);
	return ssthresh;
}

static u32 on_undo_cwnd(struct sock *sk)
{
	struct socket_state *state = *state_in(sk);
	struct cc_connection conn;
	u32 cwnd;

	if (!state)
		return tcp_snd_cwnd(tcp_sk(sk));
	begin_call(sk, &conn, state, CC_CALL_UNDO_CWND, 0, NULL);
	cwnd = control_undo_cwnd(&conn, &state->control);
	end_call(sk, &conn, state, cwnd);
	return cwnd;
}

#define NAME_OF(name) #name
#define NAME(name) NAME_OF(name)

static struct tcp_congestion_ops operations __read_mostly = {
    .flags = TCP_CONG_NON_RESTRICTED,
    .name = NAME(CC_NAME),
    .owner = THIS_MODULE,
    .init = on_init,
    .release = on_release,
#ifdef CC_WINDOW_BASED
    .cong_avoid = on_cong_avoid,
#ifdef CC_ON_RTT
    .pkts_acked = on_pkts_acked,
#endif
#else
    .cong_control = on_cong_control,
    .sndbuf_expand = on_sndbuf_expand,
    .get_info = on_get_info,
#endif
#if !defined(CC_WINDOW_BASED) || defined(CC_ON_SEND)
    .min_tso_segs = on_min_tso_segs,
#endif
#ifdef CC_SET_STATE
    .set_state = on_set_state,
#endif
#ifdef CC_ON_EVENT
    .cwnd_event = on_cwnd_event,
#endif
    .ssthresh = on_ssthresh,
    .undo_cwnd = on_undo_cwnd,
};

static int __init control_register(void)
{
	BUILD_BUG_ON(sizeof(struct socket_state *) > ICSK_CA_PRIV_SIZE);
	return tcp_register_congestion_control(&operations);
}

static void __exit control_unregister(void)
{
	tcp_unregister_congestion_control(&operations);
}

module_init(control_register);
module_exit(control_unregister);

MODULE_LICENSE("Dual BSD/GPL");
MODULE_DESCRIPTION("TCP congestion control " NAME(CC_NAME) " of brobust");
