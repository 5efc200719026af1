"""Driver `quota`: a cgroup with bandwidth control for each thread, which is what clouds sell as a part of a CPU."""

from brobust.drivers.base import Driver


class Quota(Driver):
    name = "quota"
    takes = frozenset({"share", "timeslice"})
    promise = "share"
    shares_a_cpu = True
