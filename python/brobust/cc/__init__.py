"""Congestion controls: their names, and the parameters of ours."""
