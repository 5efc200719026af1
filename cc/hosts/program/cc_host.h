/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* What cc/cc.h needs of its host, for programs. */
#ifndef BROBUST_CC_HOST_H
#define BROBUST_CC_HOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int32_t s32;
typedef int64_t s64;

/* Mirrored in crates/cc/src/abi.rs. */
struct cc_param {
	u32 *value;
	const char *name, *unit, *help;
	u32 standard, least, most;
};

/*
 * build.rs gives each control its own section for the table of its parameters. "retain", since to a
 * linker that collects garbage (lld) a section's bounds are no use of it.
 */
#define CC_PARAM(name_, value_, least_, most_, unit_, help_)                                       \
	static u32 name_ = value_;                                                                 \
	static const struct cc_param name_##_param                                                 \
	    __attribute__((section(CC_PARAM_SECTION), used, retain, aligned(8))) = {               \
		&name_, #name_, #unit_, help_, value_, least_, most_,                              \
	};

#endif
