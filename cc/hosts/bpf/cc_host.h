/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* What cc/cc.h needs of its host, for BPF. */
#ifndef BROBUST_CC_HOST_H
#define BROBUST_CC_HOST_H

/* No kernel tells BPF of tail loss probes: the verifier need not look at what they would do. */
#define CC_NOT_TOLD_OF_PROBES

#include "tcp.h"

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s32 s32;
typedef __s64 s64;

/* A constant: the loader may set it before the verifier, which then drops dead branches, sees
 * it. */
#define CC_PARAM(name, value, minimum, maximum, unit, help) const volatile u32 name = value;

#endif
