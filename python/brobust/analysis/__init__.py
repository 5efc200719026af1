"""Data in, data out: runs and cells, metrics, rules, confidence intervals. Nothing here measures or draws."""
