/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/*
 * The two signatures of tcp_congestion_ops.cong_control.
 *
 *	before Linux 6.10	(sk, rs)
 *	since Linux 6.10	(sk, ack, flag, rs)
 *
 * A program that reads an argument that is not there is refused. So the loader tells in a constant
 * which form the kernel has (it counts the parameters in the kernel's BTF), and the verifier does
 * not look into branches that a constant closes: one program serves both.
 */
#ifndef BROBUST_CONG_CONTROL_H
#define BROBUST_CONG_CONTROL_H

#include "tcp.h"

/* Set by the loader before the program is verified. */
const volatile bool cong_control_has_ack = true;

struct cong_control_args {
	struct sock *sk;
	__u32 ack;
	int flag;
	const struct rate_sample *rs;
};

/*
 * Argument "n" of a struct_ops program, whose context is an array of 64-bit arguments. In assembly,
 * since the verifier wants each read at a constant offset from the context: clang would merge two
 * reads of "rs" into one at a computed offset.
 */
#define CTX_ARGUMENT(ctx, n)                                                                       \
	({                                                                                         \
		__u64 argument;                                                                    \
		asm volatile("%[argument] = *(u64 *)(%[context] + %[offset])"                      \
			     : [argument] "=r"(argument)                                           \
			     : [context] "r"(ctx), [offset] "i"(8 * (n)));                         \
		argument;                                                                          \
	})

static __always_inline struct cong_control_args cong_control_args(const __u64 *ctx)
{
	struct cong_control_args args = {.sk = (struct sock *)CTX_ARGUMENT(ctx, 0)};

	if (cong_control_has_ack) {
		args.ack = CTX_ARGUMENT(ctx, 1);
		args.flag = CTX_ARGUMENT(ctx, 2);
		args.rs = (const struct rate_sample *)CTX_ARGUMENT(ctx, 3);
	} else {
		args.rs = (const struct rate_sample *)CTX_ARGUMENT(ctx, 1);
	}
	return args;
}

#endif
