"""Verify our congestion controls against the kernel's own, and each of them on different hosts.

`packets` compares the packets of two controls to the nanosecond, in virtual time. `shadow` compares their decisions at
every call, in VMs. `calls` compares what the same C decides in a BPF program, in a kernel module and in this process.
"""
