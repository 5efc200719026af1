"""Congestion controls: their names and parameters, and loading ours into the running kernel."""
