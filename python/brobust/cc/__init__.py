"""Congestion controls: their names, and ours in the running kernel."""
