"""Find the share at which a control carries 80 of 100 Mbit/s, and the timeslice that is worst for BBR.

docs/for-research.md has it as an example of a loop over runs. It needs SciPy, which brobust does not bring.
"""

import statistics
from functools import partial

from scipy.optimize import bisect, minimize_scalar

import brobust


def mbps(cc: str, share: float, timeslice_ms: float = 10) -> float:
    """Return the median throughput of three repeats, on a path of 100 Mbit/s and 10 ms."""
    fields = {
        "path": {"bandwidth": "100mbit", "buffer": "12bdp"},
        "flows": [{"cc": cc}],
        "contention": {"share": round(share, 4), "timeslice": f"{timeslice_ms:.2f}ms"},
        "duration": "10s",
    }
    return float(statistics.median(brobust.run(fields, repeat=n).runs["throughput_mbps"][0] for n in range(3)))


def above(cc: str, share: float) -> float:
    return mbps(cc, share) - 80


for cc in ("cubic", "bbr", "bbr_robust", "bbr_steady"):
    print(cc, bisect(partial(above, cc), 0.02, 1, xtol=0.01))
worst = minimize_scalar(lambda ms: mbps("bbr", 0.4, ms), bounds=(1, 30), method="bounded", options={"xatol": 0.1})
print(worst.x, worst.fun, worst.nfev)
