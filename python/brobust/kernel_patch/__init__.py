"""Apply the repairs to kernel trees, as semantic patches (kernel/patches), compile the result and explain it."""
