/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/*
 * A control that is a version of BBR, with or without a policy beside it (cc.h tells what a control
 * is). The file that includes this one has defined before:
 *
 *	BBR	bbr1, bbr3, bbq or master, and included its header
 *	POLICY	robust, ha or steady, and included its header; or nothing
 *
 * A version that has _on_lost() and _burst() of its own defines BBR_HEARS_OF_LOSSES.
 *
 * A policy that defines POLICY_SCHEDULES gives the stack another rate and window than BBR's. It is
 * asked before BBR runs, so that BBR finds its own values, and at each pass of the write loop.
 */
#define BBR_PASTE(a, b) a##b
#define BBR_OF(name, function) BBR_PASTE(name, function)

#define CC_SET_STATE
#define CC_ON_EVENT
#define CC_BURSTS
#ifdef BBR_HEARS_OF_LOSSES
#define CC_ON_LOST
#endif
#ifdef POLICY_SCHEDULES
#define CC_ON_SEND
#define BEFORE_BBR(conn, control) BBR_OF(POLICY, _before)(conn, &(control)->policy)
#define AFTER_BBR(conn, control) BBR_OF(POLICY, _after)(conn, &(control)->policy)
#else
#define BEFORE_BBR(conn, control)
#define AFTER_BBR(conn, control)
#endif

struct control {
	struct BBR bbr;
#ifdef POLICY
	struct POLICY policy;
#endif
};

static void control_init(struct cc_connection *conn, struct control *control)
{
	BBR_OF(BBR, _init)(conn, &control->bbr);
#ifdef POLICY
	BBR_OF(POLICY, _init)(conn, &control->policy);
#endif
}

static void control_on_ack(struct cc_connection *conn, const struct cc_sample *sample,
			   struct control *control)
{
#ifdef POLICY
	struct bbr_model model;
#endif

#ifdef POLICY_SCHEDULES
	BBR_OF(POLICY, _before_ack)(conn, sample, &control->policy);
#endif
	BBR_OF(BBR, _on_ack)(conn, sample, &control->bbr);
#ifdef POLICY
	BBR_OF(BBR, _model)(&control->bbr, &model);
	BBR_OF(POLICY, _on_ack)(conn, sample, &model, &control->policy);
#endif
#ifdef POLICY_WRITES_GAIN
	control->bbr.pacing_gain =
	    (u16)BBR_OF(POLICY, _written_gain)(&control->policy, model.pacing_gain);
#endif
}

static void control_set_state(struct cc_connection *conn, u8 state, struct control *control)
{
	BEFORE_BBR(conn, control);
	BBR_OF(BBR, _set_state)(conn, state, &control->bbr);
	conn->ca_state = state; /* which the stack is in only after this call */
	AFTER_BBR(conn, control);
}

static void control_on_event(struct cc_connection *conn, u32 event, struct control *control)
{
	BEFORE_BBR(conn, control);
	BBR_OF(BBR, _on_event)(conn, event, &control->bbr);
	AFTER_BBR(conn, control);
}

#ifdef POLICY_SCHEDULES
static void control_on_send(struct cc_connection *conn, struct control *control)
{
	BBR_OF(POLICY, _on_send)(conn, &control->policy);
}
#endif

static u32 control_ssthresh(struct cc_connection *conn, struct control *control)
{
	u32 ssthresh;

	BEFORE_BBR(conn, control);
	ssthresh = BBR_OF(BBR, _ssthresh)(conn, &control->bbr);
	AFTER_BBR(conn, control);
	return ssthresh;
}

static u32 control_undo_cwnd(struct cc_connection *conn, struct control *control)
{
	BEFORE_BBR(conn, control);
	return BBR_OF(BBR, _undo_cwnd)(conn, &control->bbr);
}

#ifdef CC_ON_LOST
CC_INLINE void control_on_lost(struct cc_connection *conn, const struct cc_sample *packet,
			       struct control *control)
{
	BEFORE_BBR(conn, control);
	BBR_OF(BBR, _on_lost)(conn, packet, &control->bbr);
	AFTER_BBR(conn, control);
}
#endif

CC_INLINE u32 control_burst(const struct cc_connection *conn, u32 mss,
			    const struct control *control CC_UNUSED)
{
#ifdef BBR_HEARS_OF_LOSSES
	return BBR_OF(BBR, _burst)(conn, mss, &control->bbr);
#else
	return bbr_burst_of_rate(conn, mss);
#endif
}

static u32 control_min_tso_segs(u64 pacing_rate)
{
	return bbr_min_burst(pacing_rate);
}

/* Return three windows, since BBR may double its window within a round of recovery. */
static u32 control_sndbuf_expand(void)
{
	return 3;
}

static void control_report(const struct cc_connection *conn, const struct control *control,
			   struct cc_report *report)
{
	BBR_OF(BBR, _report)(conn, &control->bbr, report);
#ifdef POLICY
	BBR_OF(POLICY, _report)(&control->policy, report);
#endif
}
