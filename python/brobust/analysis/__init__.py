"""Data in, data out: runs and cells, metrics, rules, intervals of confidence. Nothing here measures or draws."""
