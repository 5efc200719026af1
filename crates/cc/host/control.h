/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/*
 * A control of cc/controls for a program: its functions in a table. Included at the end of such a
 * file; cc/cc.h tells what it has defined.
 */
#include "../../../cc/call.h"

/* Mirrored in crates/cc/src/abi.rs. What a control does not have is NULL. */
struct cc_operations {
	const char *name;
	size_t control_size, connection_size, sample_size, report_size, call_size;
	const struct cc_param *params, *params_end;
	void (*init)(struct cc_connection *, void *);
	void (*on_ack)(struct cc_connection *, const struct cc_sample *, void *);
	void (*on_acked)(struct cc_connection *, u32, void *);
	void (*on_rtt)(struct cc_connection *, u32, void *);
	void (*set_state)(struct cc_connection *, u8, void *);
	void (*on_event)(struct cc_connection *, u32, void *);
	void (*on_send)(struct cc_connection *, void *);
	u32 (*ssthresh)(struct cc_connection *, void *);
	u32 (*undo_cwnd)(struct cc_connection *, void *);
	u32 (*min_tso_segs)(u64);
	u32 (*sndbuf_expand)(void);
	void (*report)(const struct cc_connection *, const void *, struct cc_report *);
};

/* The numbers come with the call: drawn by who tests, or those that were drawn when it was
 * recorded. */
CC_INLINE u32 cc_random_below(struct cc_connection *conn, u32 below)
{
	return conn->random[conn->random_draws++ & 3] % below;
}

#define NAME_OF(name) #name
#define NAME(name) NAME_OF(name)
#define PASTE_OF(a, b) a##b
#define PASTE(a, b) PASTE_OF(a, b)

/* A section whose name is an identifier has its bounds from the linker. Without a name: no
 * parameter. */
static const struct cc_param no_param
    __attribute__((section(CC_PARAM_SECTION), used, retain, aligned(8))) = {0};
extern const struct cc_param PASTE(__start_cc_params_, CC_NAME)[];
extern const struct cc_param PASTE(__stop_cc_params_, CC_NAME)[];

static void host_init(struct cc_connection *conn, void *control)
{
	control_init(conn, control);
}

#ifdef CC_WINDOW_BASED
static void host_on_acked(struct cc_connection *conn, u32 acked, void *control)
{
	control_on_acked(conn, acked, control);
}

#ifdef CC_ON_RTT
static void host_on_rtt(struct cc_connection *conn, u32 rtt_us, void *control)
{
	control_on_rtt(conn, rtt_us, control);
}
#endif
#else
static void host_on_ack(struct cc_connection *conn, const struct cc_sample *sample, void *control)
{
	control_on_ack(conn, sample, control);
}
#endif

#ifdef CC_SET_STATE
static void host_set_state(struct cc_connection *conn, u8 state, void *control)
{
	control_set_state(conn, state, control);
}
#endif

#ifdef CC_ON_EVENT
static void host_on_event(struct cc_connection *conn, u32 event, void *control)
{
	control_on_event(conn, event, control);
}
#endif

#ifdef CC_ON_SEND
static void host_on_send(struct cc_connection *conn, void *control)
{
	control_on_send(conn, control);
}
#endif

static u32 host_ssthresh(struct cc_connection *conn, void *control)
{
	return control_ssthresh(conn, control);
}

static u32 host_undo_cwnd(struct cc_connection *conn, void *control)
{
	return control_undo_cwnd(conn, control);
}

static void host_report(const struct cc_connection *conn, const void *control,
			struct cc_report *report)
{
	control_report(conn, control, report);
}

const struct cc_operations PASTE(CC_NAME, _operations) = {
    .name = NAME(CC_NAME),
    .control_size = sizeof(struct control),
    .connection_size = sizeof(struct cc_connection),
    .sample_size = sizeof(struct cc_sample),
    .report_size = sizeof(struct cc_report),
    .call_size = sizeof(struct cc_call),
    .params = PASTE(__start_cc_params_, CC_NAME),
    .params_end = PASTE(__stop_cc_params_, CC_NAME),
    .init = host_init,
#ifdef CC_WINDOW_BASED
    .on_acked = host_on_acked,
#ifdef CC_ON_RTT
    .on_rtt = host_on_rtt,
#endif
#else
    .on_ack = host_on_ack,
    .sndbuf_expand = control_sndbuf_expand,
#endif
#ifdef CC_SET_STATE
    .set_state = host_set_state,
#endif
#ifdef CC_ON_EVENT
    .on_event = host_on_event,
#endif
#if !defined(CC_WINDOW_BASED) || defined(CC_ON_SEND)
    .min_tso_segs = control_min_tso_segs,
#endif
#ifdef CC_ON_SEND
    .on_send = host_on_send,
#endif
    .ssthresh = host_ssthresh,
    .undo_cwnd = host_undo_cwnd,
    .report = host_report,
};
