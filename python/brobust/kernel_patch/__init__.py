"""The repair for kernel trees: semantic patches (kernel/patches), applied, compiled and told about."""
