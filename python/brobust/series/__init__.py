"""Measure many runs: a series on this host or on a cluster, its expected time, and the same cells on both backends."""
