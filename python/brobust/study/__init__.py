"""Studies: what a figure of a paper measures, how it is drawn and what the paper claims of it, as data.

`model`: the file; `metrics`: figures of a run beyond its throughput; `claims`: rules over a dataset and their verdicts.
"""
