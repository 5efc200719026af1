"""The testbed of the backend `vm`: two QEMU guests, the path between them, and the traffic."""
