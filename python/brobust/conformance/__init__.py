"""Our controls beside the kernel's own, and beside themselves on other hosts.

`packets`: the same packets to the nanosecond, in virtual time. `shadow`: the same decision at every call, in VMs.
`calls`: the same decision from the same C in a BPF program, in a kernel module and in this process.
"""
