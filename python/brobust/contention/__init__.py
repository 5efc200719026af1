"""The CPU taken away from vCPU threads: drivers, what the threads got, and whether it is what was asked for."""
