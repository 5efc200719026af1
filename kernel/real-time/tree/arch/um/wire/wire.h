/* SPDX-License-Identifier: GPL-2.0-only */
/* A kernel in real time: what wire.c calls of host.c, which runs against the C library. */
#ifndef BROBUST_WIRE_H
#define BROBUST_WIRE_H

extern int wire_socket; /* what eth0 is connected to; -1: this kernel is not in real time */

long wire_send(const void *frame, unsigned long size);
long wire_receive(void *frame, unsigned long size);

#endif
