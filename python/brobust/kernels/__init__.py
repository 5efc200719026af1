"""Kernels: found, fetched and built, for virtual time and for VMs."""
