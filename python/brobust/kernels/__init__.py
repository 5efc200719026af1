"""Find, fetch and build kernels, for virtual time and for VMs."""
