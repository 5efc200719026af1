/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/*
 * A control of cc/controls for a program: its functions in a table. Such a file includes this at
 * its end; cc/cc.h tells what it has defined.
 */
#include "../../cc.h"

/*
 * Mirrored in crates/cc/src/abi.rs, where struct control is opaque. A function that a control does
 * not have is NULL.
 */
struct cc_operations {
	const char *name;
	size_t control_size;
	const struct cc_param *params, *params_end;
	void (*init)(struct cc_connection *, struct control *);
	void (*on_ack)(struct cc_connection *, const struct cc_sample *, struct control *);
	void (*on_acked)(struct cc_connection *, u32, struct control *);
	void (*on_rtt)(struct cc_connection *, u32, struct control *);
	void (*set_state)(struct cc_connection *, u8, struct control *);
	void (*on_event)(struct cc_connection *, u32, struct control *);
	void (*on_send)(struct cc_connection *, struct control *);
	void (*on_lost)(struct cc_connection *, const struct cc_sample *, struct control *);
	u32 (*ssthresh)(struct cc_connection *, struct control *);
	u32 (*undo_cwnd)(struct cc_connection *, struct control *);
	u32 (*min_tso_segs)(u64);
	u32 (*burst)(const struct cc_connection *, u32, const struct control *);
	u32 (*sndbuf_expand)(void);
	void (*report)(const struct cc_connection *, const struct control *, struct cc_report *);
};

/* The draws come with the call: those of a test, or those that were recorded. */
CC_INLINE u32 cc_random_below(struct cc_connection *conn, u32 below)
{
	return conn->random[conn->random_draws++ & 3] % below;
}

#define NAME_OF(name) #name
#define NAME(name) NAME_OF(name)
#define PASTE_OF(a, b) a##b
#define PASTE(a, b) PASTE_OF(a, b)

/* The linker gives a section its bounds if the section's name is an identifier. The entry without a
 * name stands for no parameter: it makes the section exist. */
static const struct cc_param no_param
    __attribute__((section(CC_PARAM_SECTION), used, retain, aligned(8))) = {0};
extern const struct cc_param PASTE(__start_cc_params_, CC_NAME)[];
extern const struct cc_param PASTE(__stop_cc_params_, CC_NAME)[];

const struct cc_operations PASTE(CC_NAME, _operations) = {
    .name = NAME(CC_NAME),
    .control_size = sizeof(struct control),
    .params = PASTE(__start_cc_params_, CC_NAME),
    .params_end = PASTE(__stop_cc_params_, CC_NAME),
    .init = control_init,
#ifdef CC_WINDOW_BASED
    .on_acked = control_on_acked,
#ifdef CC_ON_RTT
    .on_rtt = control_on_rtt,
#endif
#else
    .on_ack = control_on_ack,
    .sndbuf_expand = control_sndbuf_expand,
#endif
#ifdef CC_SET_STATE
    .set_state = control_set_state,
#endif
#ifdef CC_ON_EVENT
    .on_event = control_on_event,
#endif
#if !defined(CC_WINDOW_BASED) || defined(CC_ON_SEND)
    .min_tso_segs = control_min_tso_segs,
#endif
#ifdef CC_ON_SEND
    .on_send = control_on_send,
#endif
#ifdef CC_ON_LOST
    .on_lost = control_on_lost,
#endif
#ifdef CC_BURSTS
    .burst = control_burst,
#endif
    .ssthresh = control_ssthresh,
    .undo_cwnd = control_undo_cwnd,
    .report = control_report,
};
