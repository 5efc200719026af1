"""Many runs: a series here or on a cluster, how long it takes, and the same cells on both backends."""
