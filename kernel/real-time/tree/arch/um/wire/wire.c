// SPDX-License-Identifier: GPL-2.0-only
/*
 * The same kernel in real time: it has the host's clock, user space, and one network device whose
 * frames are messages of a socket. The other end of the socket is another kernel.
 *
 * The device takes no super-packets, so the kernel at the other end, which may queue them, gets
 * what a wire would carry. A frame is freed when the socket has taken it.
 */
#include <linux/etherdevice.h>
#include <linux/hrtimer.h>
#include <linux/kthread.h>
#include <linux/netdevice.h>
#include <linux/sched.h>

#include <irq_kern.h>

#include "wire.h"

#define FRAME_BYTES (ETH_DATA_LEN + ETH_HLEN)
/* How long a full socket is left alone. It is full when the other kernel had no CPU for a while. */
#define RETRY_NS (100 * NSEC_PER_USEC)

struct wire {
	struct net_device *dev;
	struct napi_struct napi;
	struct hrtimer retry;
};

static enum hrtimer_restart wake_queue(struct hrtimer *timer)
{
	netif_wake_queue(container_of(timer, struct wire, retry)->dev);
	return HRTIMER_NORESTART;
}

static netdev_tx_t start_xmit(struct sk_buff *skb, struct net_device *dev)
{
	struct wire *wire = netdev_priv(dev);
	static u8 frame[FRAME_BYTES];
	u32 size = skb->len;
	long sent;

	if (size > sizeof(frame) || skb_copy_bits(skb, 0, frame, size)) {
		dev->stats.tx_dropped++;
		dev_kfree_skb_any(skb);
		return NETDEV_TX_OK;
	}
	sent = wire_send(frame, size);
	if (sent == -EAGAIN || sent == -ENOBUFS) {
		netif_stop_queue(dev);
		hrtimer_start(&wire->retry, RETRY_NS, HRTIMER_MODE_REL);
		return NETDEV_TX_BUSY;
	}
	if (sent < 0)
		dev->stats.tx_errors++;
	dev->stats.tx_packets++;
	dev->stats.tx_bytes += size;
	dev_consume_skb_any(skb);
	return NETDEV_TX_OK;
}

static int poll(struct napi_struct *napi, int budget)
{
	struct wire *wire = container_of(napi, struct wire, napi);
	int done = 0;

	while (done < budget) {
		struct sk_buff *skb = napi_alloc_skb(napi, FRAME_BYTES);
		long size;

		if (!skb)
			break;
		size = wire_receive(skb->data, FRAME_BYTES);
		if (size < ETH_HLEN) {
			napi_consume_skb(skb, budget);
			break;
		}
		skb_put(skb, size);
		skb->protocol = eth_type_trans(skb, wire->dev);
		/* The sender left the checksum to the device, and a socket loses no bits. */
		skb->ip_summed = CHECKSUM_UNNECESSARY;
		wire->dev->stats.rx_packets++;
		wire->dev->stats.rx_bytes += size;
		napi_gro_receive(napi, skb);
		done++;
	}
	/* A frame that comes from here on raises the interrupt again. */
	if (done < budget)
		napi_complete_done(napi, done);
	return done;
}

static irqreturn_t on_interrupt(int irq, void *argument)
{
	struct wire *wire = argument;

	napi_schedule(&wire->napi);
	return IRQ_HANDLED;
}

static const struct net_device_ops operations = {
    .ndo_start_xmit = start_xmit,
    .ndo_validate_addr = eth_validate_addr,
    .ndo_set_mac_address = eth_mac_addr,
};

static int __init wire_create(void)
{
	struct net_device *dev;
	struct wire *wire;
	int irq;

	if (wire_socket < 0)
		return 0;
	dev = alloc_etherdev(sizeof(*wire));
	if (!dev)
		return -ENOMEM;
	wire = netdev_priv(dev);
	wire->dev = dev;
	dev->netdev_ops = &operations;
	dev->features = dev->hw_features = NETIF_F_SG | NETIF_F_HW_CSUM;
	eth_hw_addr_random(dev);
	hrtimer_init(&wire->retry, CLOCK_MONOTONIC, HRTIMER_MODE_REL);
	wire->retry.function = wake_queue;
	netif_napi_add(dev, &wire->napi, poll);
	napi_enable(&wire->napi);
	irq = um_request_irq(UM_IRQ_ALLOC, wire_socket, IRQ_READ, on_interrupt, 0, "wire", wire);
	return irq < 0 ? irq : register_netdev(dev);
}
late_initcall(wire_create);

/*
 * A kernel that has nothing to do keeps its CPU busy at the lowest priority if it is told to. Who
 * sleeps is not seen to lack a CPU, and a scheduler that counts turns from wake-ups gives it others
 * (python/brobust/backends/vm.py does the same to a guest of QEMU).
 */
static bool busy;
core_param(brobust_busy, busy, bool, 0);

static int spin(void *nothing)
{
	struct sched_param lowest = {};

	sched_setscheduler_nocheck(current, SCHED_IDLE, &lowest);
	for (;;) {
		cpu_relax();
		cond_resched();
	}
	return 0;
}

static int __init start_spinning(void)
{
	if (busy)
		kthread_run(spin, NULL, "spin");
	return 0;
}
late_initcall(start_spinning);
