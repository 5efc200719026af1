// SPDX-License-Identifier: GPL-2.0-only
/*
 * The packets that arrive. The controller leaves frames ahead of time, each with the time at which it
 * arrives, in that order. A packet is made of a frame only when its time has come: by then those
 * before it are gone, and their memory is used again while the CPU's caches have it. Of frames that
 * still wait when the controller leaves others in their place, packets are made then.
 */
#include <linux/etherdevice.h>
#include <linux/netdevice.h>

#include "arrivals.h"
#include "internal.h"

/* Memory that a socket is charged for a receive buffer of a driver with an MTU of 1500 bytes. */
#define RX_BUFFER_BYTES 2048

/* A packet that arrives: one of `kept` or, if `skb` is NULL, the frame at an offset of brobust->rx. */
struct arrival {
	struct sk_buff *skb;
	u32 frame;
};

static struct net_device *device;
static struct sk_buff_head kept; /* what waited when the controller left frames, */
static u32 next_frame;		 /* and from here on in brobust->rx what it left */
static struct page *zeros;	 /* one page in place of all payload that is not carried */

static struct brobust_frame *frame_at(u32 offset)
{
	return (struct brobust_frame *)(brobust->rx + offset);
}

/* Return the offset of the first frame from this one on that was not lost. */
static u32 not_lost(u32 offset)
{
	while (offset < brobust->rx_bytes && !frame_at(offset)->length)
		offset += frame_at(offset)->record;
	return offset;
}

static struct arrival first_arrival(void)
{
	return (struct arrival){skb_peek(&kept), not_lost(next_frame)};
}

static struct arrival arrival_after(struct arrival this)
{
	if (this.skb)
		return (struct arrival){skb_peek_next(this.skb, &kept), this.frame};
	return (struct arrival){NULL, not_lost(this.frame + frame_at(this.frame)->record)};
}

/* Return when a packet arrives, U64_MAX where there is none. */
static u64 arrives(struct arrival this)
{
	if (this.skb)
		return *brobust_due(this.skb);
	return this.frame < brobust->rx_bytes ? frame_at(this.frame)->time : U64_MAX;
}

u64 brobust_arrival(u32 number)
{
	struct arrival this = first_arrival();

	while (--number && arrives(this) != U64_MAX)
		this = arrival_after(this);
	return arrives(this);
}

u32 brobust_drop_arrivals(u32 room)
{
	struct arrival this, next;
	u32 count = 0, dropped = 0;

	for (this = first_arrival(); arrives(this) <= brobust_now(); this = next) {
		next = arrival_after(this);
		if (++count <= room)
			continue;
		if (this.skb) {
			__skb_unlink(this.skb, &kept);
			kfree_skb(this.skb);
		} else {
			frame_at(this.frame)->length = 0;
		}
		dropped++;
	}
	return dropped;
}

/* Carried payload lies in a buffer like those of a driver with an MTU of 1500 bytes, so that the
 * socket is charged as much memory as for payload that is not carried. */
static bool add_payload(struct sk_buff *skb, const void *payload, u32 size)
{
	u32 space = max_t(u32, ALIGN(size, SMP_CACHE_BYTES), RX_BUFFER_BYTES);
	void *buffer = space <= PAGE_SIZE ? netdev_alloc_frag(space) : NULL;
	struct page *page;

	if (!buffer)
		return false;
	memcpy(buffer, payload, size);
	page = virt_to_head_page(buffer);
	skb_add_rx_frag(skb, 0, page, buffer - page_address(page), size, space);
	return true;
}

static struct sk_buff *build(const struct brobust_frame *frame)
{
	u32 rest = frame->length - frame->header - frame->payload;
	const u8 *header = (const u8 *)(frame + 1);
	struct sk_buff *skb = netdev_alloc_skb_ip_align(device, frame->header);

	if (!skb)
		return NULL;
	skb_put_data(skb, header, frame->header);
	if (frame->payload && !add_payload(skb, header + frame->header, frame->payload)) {
		kfree_skb(skb);
		return NULL;
	}
	if (rest) {
		get_page(zeros);
		skb_add_rx_frag(skb, skb_shinfo(skb)->nr_frags, zeros, 0, rest, RX_BUFFER_BYTES);
	}
	skb->protocol = eth_type_trans(skb, device);
	skb->ip_summed = CHECKSUM_UNNECESSARY;
	skb->mark = frame->mark;
	return skb;
}

/* Make a packet of the next frame. Return NULL if there is none, or no memory. */
static struct sk_buff *take_frame(void)
{
	u32 at = not_lost(next_frame);
	struct sk_buff *skb;

	if (at == brobust->rx_bytes)
		return NULL;
	next_frame = at + frame_at(at)->record;
	skb = build(frame_at(at));
	if (skb)
		*brobust_due(skb) = frame_at(at)->time;
	return skb;
}

struct sk_buff *brobust_take_arrival(void)
{
	return __skb_dequeue(&kept) ?: take_frame();
}

static void keep_frames(void)
{
	while (not_lost(next_frame) < brobust->rx_bytes) {
		struct sk_buff *skb = take_frame();

		if (skb)
			__skb_queue_tail(&kept, skb);
	}
	brobust->rx_bytes = 0;
	next_frame = 0;
}

int brobust_arrivals_start(struct net_device *dev)
{
	zeros = alloc_page(GFP_KERNEL | __GFP_ZERO);
	if (!zeros)
		return -ENOMEM;
	device = dev;
	skb_queue_head_init(&kept);
	brobust_before_frames = keep_frames;
	return 0;
}
