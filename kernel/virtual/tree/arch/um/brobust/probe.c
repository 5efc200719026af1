// SPDX-License-Identifier: GPL-2.0-only
/*
 * A record of every socket after every ACK. It costs no virtual time, so it changes nothing.
 */
#include <linux/inet_diag.h>
#include <net/ipv6.h>
#include <net/tcp.h>

#include "cc/call.h"
#include "cc/hosts/module/virtual_kernel.h"
#include "internal.h"

static_assert(BROBUST_NO_FLOW == BROBUST_FLOWS);

/* What the control of a flow has last reported. */
static struct {
	u32 deficits, mode;
	bool reports;
} reported[BROBUST_FLOWS];

u32 brobust_flow_of(const struct sock *sk)
{
	u32 number;

	if (!brobust || brobust->role != BROBUST_SENDER)
		return BROBUST_FLOWS;
	number = inet_sk(sk)->inet_num - brobust->first_port;
	return number < brobust->flows ? number : BROBUST_FLOWS;
}

void brobust_note_report(struct sock *sk, u64 deficit_acks, u32 mode)
{
	u32 flow = brobust_flow_of(sk);

	if (flow >= BROBUST_FLOWS)
		return;
	reported[flow].deficits = deficit_acks;
	reported[flow].mode = mode;
	reported[flow].reports = true;
}

bool brobust_records_calls(void)
{
	return brobust_host_records_calls();
}

void brobust_note_call(const struct cc_call *call)
{
	brobust_host_record_call(call, sizeof(*call));
}

static void add_bbr(struct brobust_ack *ack, struct sock *sk)
{
	const struct tcp_congestion_ops *ops = inet_csk(sk)->icsk_ca_ops;
	union tcp_cc_info info = {};
	int attribute = 0;

	if (!ops->get_info || !ops->get_info(sk, 1 << (INET_DIAG_BBRINFO - 1), &attribute, &info) ||
	    attribute != INET_DIAG_BBRINFO)
		return;
	ack->bandwidth = (u64)info.bbr.bbr_bw_hi << 32 | info.bbr.bbr_bw_lo;
	ack->bbr_min_rtt_us = info.bbr.bbr_min_rtt;
	ack->pacing_gain = info.bbr.bbr_pacing_gain;
	ack->cwnd_gain = info.bbr.bbr_cwnd_gain;
}

/* `idle`: ns for which pacing wants to wait until the next packet; 0 where it does not pace. */
void brobust_after_send(const struct sock *sk, u32 bytes, u64 idle)
{
	u32 flow = brobust_flow_of(sk);
	struct brobust_flow_stats *stats;

	if (flow >= BROBUST_FLOWS || flow >= brobust->transfers_from)
		return;
	brobust_flow_changed(flow);
	if (!bytes)
		return;
	stats = &brobust->stats[flow];
	stats->sent += bytes;
	stats->skbs++;
	stats->idle += idle;
	stats->paced += idle > 0;
}

/* Return the place for the record of an ACK: a new one or, where only the last of a flow is wanted, that
 * of the one before. */
static struct brobust_ack *place_of_record(u32 flow)
{
	static u32 last[BROBUST_FLOWS];

	if (!brobust->every_ack) {
		if (last[flow] < brobust->acks && brobust->ack[last[flow]].flow == flow)
			return &brobust->ack[last[flow]];
		last[flow] = brobust->acks;
	}
	return &brobust->ack[brobust->acks++];
}

/* A socket of IPv6 may have a peer of IPv4: a program's, over the loopback. */
static u32 remote_of(const struct sock *sk)
{
	if (sk->sk_family == AF_INET6 && !ipv6_addr_v4mapped(&sk->sk_v6_daddr))
		return brobust_number_of(&sk->sk_v6_daddr);
	return ntohl(inet_sk(sk)->inet_daddr);
}

void brobust_after_ack(struct sock *sk)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	u32 flow = brobust_flow_of(sk);
	struct brobust_ack *ack;

	/* A program's sockets have any ports. Which of them are whose, the controller knows. */
	if (flow >= BROBUST_FLOWS &&
	    !(brobust && brobust->programs && brobust->role == BROBUST_SENDER))
		return;
	if (flow < BROBUST_FLOWS) {
		if (flow >= brobust->transfers_from)
			return;
		brobust_flow_changed(flow);
	}
	if (brobust->acks == BROBUST_ACKS)
		brobust_sync(BROBUST_DRAIN);
	ack = place_of_record(flow);
	if (!brobust->every_ack) {
		ack->flow = flow;
		ack->time = brobust_now();
		ack->srtt_us = tp->srtt_us >> 3;
		ack->retransmits = tp->total_retrans;
		return;
	}
	*ack = (struct brobust_ack){
	    .time = brobust_now(),
	    .pacing_rate = READ_ONCE(sk->sk_pacing_rate),
	    .acked = tp->bytes_acked,
	    .flow = flow,
	    .cwnd = tcp_snd_cwnd(tp),
	    .ssthresh = tp->snd_ssthresh,
	    .inflight = tcp_packets_in_flight(tp),
	    .delivered = tp->delivered,
	    .lost = tp->lost,
	    .retransmits = tp->total_retrans,
	    .rate_delivered = tp->rate_delivered,
	    .rate_interval_us = tp->rate_interval_us,
	    .rtt_us = tp->rack.rtt_us,
	    .srtt_us = tp->srtt_us >> 3,
	    .min_rtt_us = tcp_min_rtt(tp),
	    .mss = tp->mss_cache,
	    .remote = remote_of(sk),
	    .local_port = inet_sk(sk)->inet_num,
	    .remote_port = ntohs(inet_sk(sk)->inet_dport),
	    .flags = inet_csk(sk)->icsk_ca_state | tp->rate_app_limited << 4,
	};
	if (flow < BROBUST_FLOWS) {
		ack->deficits = reported[flow].deficits;
		ack->flags |= reported[flow].reports << 5 | reported[flow].mode << 8;
	}
	add_bbr(ack, sk);
}
