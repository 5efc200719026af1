"""What only the backend `virtual` needs: the CPUs of its runs, and iperf3 inside its kernels."""
