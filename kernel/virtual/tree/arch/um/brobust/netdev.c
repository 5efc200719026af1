// SPDX-License-Identifier: GPL-2.0-only
/*
 * The network device: frames to and from the controller, which is the link.
 *
 * A frame is handed over with the time at which it was sent. Frames from the link come ahead of
 * time, each with the time at which it arrives. They raise the interrupt then, or `coalesce` later
 * together with all that arrived until then. With `adaptive_rx` the kernel's own library for drivers
 * (lib/dim) chooses how long that is. What arrives while `rx_ring` packets wait is lost. A sent packet
 * is freed `tx_completion` after it was handed over, which is what TCP small queues wait for.
 *
 * A bottleneck's device sends at `rate` and takes one packet at a time, so that all queueing
 * happens in the queueing discipline in front of it.
 */
#include <linux/dim.h>
#include <linux/etherdevice.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/math64.h>
#include <linux/netdevice.h>
#include <linux/tcp.h>
#include <linux/time-internal.h>
#include <linux/udp.h>
#include <linux/version.h>
#include <net/ip.h>

#include "arrivals.h"
#include "internal.h"

#define OTHER_HEADER_BYTES 128

struct brobust_net {
	struct net_device *dev;
	struct napi_struct napi;
	struct sk_buff_head completing; /* in order of their due time */
	struct time_travel_event interrupt;
	u64 interrupt_at; /* the packets that arrive raise the interrupt then; 0: not computed */
	u64 hold;	  /* ns for which the first packet may wait for others */
	u32 most;	  /* as many packets raise the interrupt at once; 0: no number does */
	struct dim dim;
	u64 rx_bytes;
};

static struct brobust_net *net;

/* Return when the packets that arrive raise the interrupt, the first of which arrives at `first`. */
static u64 interrupt_time(struct brobust_net *net, u64 first)
{
	u64 latest = first + net->hold;

	return net->hold && net->most ? min(latest, brobust_arrival(net->most)) : latest;
}

static u64 next_due(struct brobust_net *net)
{
	struct sk_buff *out = skb_peek(&net->completing);
	u64 first = brobust_arrival(1), at = U64_MAX;

	if (first != U64_MAX) {
		if (!net->interrupt_at)
			net->interrupt_at = interrupt_time(net, first);
		at = brobust_vcpu_from(brobust->rx_vcpu, net->interrupt_at);
	}
	if (out)
		at = min(at, brobust_vcpu_from(brobust->tx_vcpu, *brobust_due(out)));
	return at;
}

static void arm_interrupt(struct brobust_net *net)
{
	u64 at = next_due(net), now = brobust_now();
	unsigned long flags;

	local_irq_save(flags);
	time_travel_del_event(&net->interrupt);
	if (at != U64_MAX)
		time_travel_add_event_rel(&net->interrupt, at > now ? at - now : 0);
	local_irq_restore(flags);
}

static void use_profile(struct brobust_net *net)
{
	struct dim_cq_moder chosen = net_dim_get_rx_moderation(net->dim.mode, net->dim.profile_ix);

	net->hold = chosen.usec * NSEC_PER_USEC;
	net->most = chosen.pkts;
	net->interrupt_at = 0;
	net->dim.state = DIM_START_MEASURE;
}

static void on_dim_work(struct work_struct *work)
{
	use_profile(container_of(container_of(work, struct dim, work), struct brobust_net, dim));
}

static void moderate(struct brobust_net *net)
{
	struct dim_sample sample = {};

	dim_update_sample(brobust->interrupts, brobust->rx_packets, net->rx_bytes, &sample);
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 13, 0)
	net_dim(&net->dim, &sample);
#else
	net_dim(&net->dim, sample);
#endif
}

/* Drivers tell lib/dim of every interrupt when they arm the next one. */
static void begin_interrupt(struct brobust_net *net)
{
	brobust->interrupts++;
	if (brobust->adaptive_rx && brobust->interrupts > 1)
		moderate(net);
}

static void on_interrupt(struct time_travel_event *event)
{
	begin_interrupt(net);
	napi_schedule(&net->napi);
}

static void complete_sent(struct brobust_net *net, int budget)
{
	struct sk_buff *skb;
	bool any = false;

	while ((skb = skb_peek(&net->completing)) && *brobust_due(skb) <= brobust_now()) {
		__skb_unlink(skb, &net->completing);
		napi_consume_skb(skb, budget);
		any = true;
	}
	if (any && netif_queue_stopped(net->dev))
		netif_wake_queue(net->dev);
}

/* Lose what arrived while the ring was full. Nothing has been taken out of it since, as the kernel
 * did other things or had no CPU. */
static void drop_beyond_ring(struct brobust_net *net)
{
	u32 dropped = brobust->rx_ring ? brobust_drop_arrivals(brobust->rx_ring) : 0;

	brobust->rx_dropped += dropped;
	if (dropped)
		net->interrupt_at = 0;
}

static bool has_arrived(void)
{
	return brobust_arrival(1) <= brobust_now();
}

/* Hand over the packets that have arrived. Where there is one only, GRO has nothing to merge. */
static int receive_due(struct brobust_net *net, int budget)
{
	struct sk_buff *skb;
	int done = 0;

	while (done < budget && has_arrived()) {
		net->interrupt_at = 0;
		skb = brobust_take_arrival();
		if (!skb)
			continue;
		brobust_charge_cpu(brobust->rx_packet_cost);
		brobust->rx_packets++;
		net->rx_bytes += skb->len;
		/* A router must see every packet by itself: its device does not segment. */
		if (!brobust->gro || brobust->role == BROBUST_BOTTLENECK ||
		    (!done && !has_arrived()))
			netif_receive_skb(skb);
		else
			napi_gro_receive(&net->napi, skb);
		done++;
	}
	return done;
}

/* Do on the vCPUs of the two queues, if they may run, what they have to do. The one that receives also frees
 * what was sent, as that of virtio_net does. */
static int poll_queues(struct brobust_net *net, int budget)
{
	if (has_arrived() && brobust_enter_vcpu(brobust->rx_vcpu)) {
		complete_sent(net, budget);
		drop_beyond_ring(net);
		return receive_due(net, budget);
	}
	if (brobust_enter_vcpu(brobust->tx_vcpu))
		complete_sent(net, budget);
	return 0;
}

/* Handle an interrupt, and those after it as long as nothing else happens in between. */
static int poll(struct napi_struct *napi, int budget)
{
	int done;
	u64 due;

	for (;;) {
		done = poll_queues(net, budget);
		if (done == budget)
			return done;
		if (done > 1)
			break; /* GRO may hold packets, which the end of this poll hands over */
		brobust_read_sinks();
		due = next_due(net);
		if (!brobust_may_advance_to(due))
			break;
		time_travel_time = due;
		begin_interrupt(net);
	}
	if (napi_complete_done(napi, done))
		arm_interrupt(net);
	brobust_read_sinks();
	return done;
}

static u32 header_bytes(const struct sk_buff *skb)
{
	u32 length = min_t(u32, skb->len, OTHER_HEADER_BYTES);
	u8 protocol;

	if (skb->protocol == htons(ETH_P_IP) && !ip_is_fragment(ip_hdr(skb)))
		protocol = ip_hdr(skb)->protocol;
	else if (skb->protocol == htons(ETH_P_IPV6))
		/* Super-packets of more than 64 KiB have a hop-by-hop header before TCP's. */
		protocol = skb_is_gso_tcp(skb) ? IPPROTO_TCP : ipv6_hdr(skb)->nexthdr;
	else
		return length;
	if (protocol == IPPROTO_TCP)
		length = skb_transport_offset(skb) + tcp_hdrlen(skb);
	else if (protocol == IPPROTO_UDP)
		length = skb_transport_offset(skb) + sizeof(struct udphdr);
	return length;
}

static netdev_tx_t start_xmit(struct sk_buff *skb, struct net_device *dev)
{
	u32 header = header_bytes(skb);
	u32 payload = brobust->carry_payload ? skb->len - header : 0;
	u32 record = ALIGN(sizeof(struct brobust_frame) + header + payload, 8);
	struct brobust_frame *frame;
	u64 free_at;

	/* Whichever vCPU sends frees what was sent before and waits for another one's interrupt. */
	if (brobust_vcpu_from(brobust->tx_vcpu, brobust_now()) > brobust_now())
		complete_sent(net, 0);
	brobust_charge_cpu(brobust->tx_skb_cost + brobust->tx_byte_cost * skb->len);
	brobust->tx_skbs++;
	if (brobust->tx_bytes + record > BROBUST_FRAME_BYTES)
		brobust_sync(BROBUST_DRAIN);

	frame = (struct brobust_frame *)(brobust->tx + brobust->tx_bytes);
	*frame = (struct brobust_frame){
	    .time = brobust_now(),
	    .length = skb->len,
	    .record = record,
	    .header = header,
	    .payload = payload,
	    .gso_size = skb_shinfo(skb)->gso_size,
	    .mark = skb->mark,
	};
	if (skb_copy_bits(skb, 0, frame + 1, header + payload)) {
		dev_kfree_skb_any(skb);
		return NETDEV_TX_OK;
	}
	free_at = frame->time + brobust->tx_completion;
	if (brobust->role == BROBUST_BOTTLENECK && brobust->rate) {
		frame->time += div64_u64(skb->len * 8ULL * NSEC_PER_SEC, brobust->rate);
		free_at = frame->time;
		netif_stop_queue(dev);
	}
	brobust->tx_bytes += record;

	if (free_at == brobust_now()) {
		dev_consume_skb_any(skb);
		return NETDEV_TX_OK;
	}
	*brobust_due(skb) = free_at;
	__skb_queue_tail(&net->completing, skb);
	if (skb_peek(&net->completing) == skb)
		arm_interrupt(net);
	return NETDEV_TX_OK;
}

static void receive_frames(void)
{
	net->interrupt_at = 0;
	/* A poll that is running arms the interrupt again when it ends. */
	if (brobust->rx_bytes && !test_bit(NAPI_STATE_SCHED, &net->napi.state))
		arm_interrupt(net);
}

static const struct net_device_ops operations = {
    .ndo_start_xmit = start_xmit,
    .ndo_validate_addr = eth_validate_addr,
};

/* As `ip link set gso_max_size` and gso_ipv4_max_size: packets of more than 64 KiB. */
static int allow_big_tcp(struct net_device *dev)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(5, 19, 0)
	if (brobust->ip_version == 6) {
		WRITE_ONCE(dev->gso_max_size, brobust->tso_max_size);
		WRITE_ONCE(dev->gro_max_size, brobust->tso_max_size);
		return 0;
	}
#endif
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 3, 0)
	WRITE_ONCE(dev->gso_max_size, brobust->tso_max_size);
	WRITE_ONCE(dev->gso_ipv4_max_size, brobust->tso_max_size);
	WRITE_ONCE(dev->gro_ipv4_max_size, brobust->tso_max_size);
	return 0;
#else
	return -EOPNOTSUPP;
#endif
}

int brobust_net_create(void)
{
	static const u8 address[ETH_ALEN] = {2, 0, 0, 0, 0, 1};
	struct net_device *dev = alloc_etherdev(sizeof(*net));

	if (!dev)
		return -ENOMEM;
	net = netdev_priv(dev);
	net->dev = dev;
	if (brobust_arrivals_start(dev))
		return -ENOMEM;
	brobust_after_exchange = receive_frames;
	skb_queue_head_init(&net->completing);
	time_travel_set_event_fn(&net->interrupt, on_interrupt);
	net->hold = brobust->coalesce;
	if (brobust->adaptive_rx) {
		INIT_WORK(&net->dim.work, on_dim_work);
		net->dim.mode = DIM_CQ_PERIOD_MODE_START_FROM_EQE;
		use_profile(net);
	}
	dev->netdev_ops = &operations;
	/* No ARP: all nodes have the same Ethernet address, and the link forwards by IP address. */
	dev->flags |= IFF_NOARP;
	/* A router over IPv6 would join a group, and say so. */
	dev->flags &= ~IFF_MULTICAST;
	eth_hw_addr_set(dev, address);
	if (brobust->role != BROBUST_BOTTLENECK) {
		dev->hw_features = NETIF_F_SG | NETIF_F_HW_CSUM | NETIF_F_TSO | NETIF_F_TSO6;
		/* Without programs there is no UDP. */
		if (brobust->programs)
			dev->hw_features |= NETIF_F_GSO_UDP_L4;
		dev->features = dev->hw_features;
		netif_set_tso_max_size(dev, brobust->tso_max_size);
		if (brobust->tso_max_size > GSO_LEGACY_MAX_SIZE && allow_big_tcp(dev))
			return -EOPNOTSUPP;
	} else {
		dev->features = NETIF_F_SG | NETIF_F_HW_CSUM;
	}
	netif_napi_add(dev, &net->napi, poll);
	napi_enable(&net->napi);
	return register_netdev(dev);
}
