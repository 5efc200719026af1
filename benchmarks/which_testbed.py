#!/usr/bin/env python3
"""Rank testbeds by how many of 2BRobust's claims hold in them:

    .venv/bin/python benchmarks/which_testbed.py --out DIR              # 5,913 runs of 20 s

The paper says neither how its host ends timeslices, nor how many vCPUs its sender had, nor what its buffer counts,
nor what its VMs and NICs add to the path. A testbed is one of five schedules, one or two vCPUs (one where the vCPU
sleeps when it has nothing to do: which of two would wake up is not known), one of two units of a buffer of 1 BDP, and
one of three additions to a path with an RTT of 10 ms. In each, the eleven claims of figure `fingerprint` are decided
by their own rules, on its cells. A claim counts as the part of its named parts that holds. The best testbed is chosen
on half of the claims; what it is worth stands in the other half. Which half a claim belongs to is decided by the
SHA-256 of its name, not by its result.

DIR/ranking.csv has a row for each testbed: `chosen_on` and `tested_on` are means over the claims of a half, 0 to 1.
DIR/claims.csv has a row for each testbed and claim.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
from controls import measured

from brobust.analysis import twins
from brobust.analysis.claims import HOLDS, Claim
from brobust.analysis.metrics import Evidence, Tables
from brobust.scenario import Grid
from brobust.scenario.grid import override
from brobust.study import Scale, model

SCHEDULES: dict[str, dict[str, Any]] = {
    "exact": {"length_jitter": 0},
    "lengths +-20 %": {"length_jitter": 0.2},
    "busy vCPU, 250 ticks/s": {"driver": "deadline", "start_jitter": 0, "length_jitter": 0},
    "busy vCPU, 1000 ticks/s": {"driver": "deadline:hz=1000", "start_jitter": 0, "length_jitter": 0},
    "idle vCPU": {"driver": "deadline:idle", "start_jitter": 0, "length_jitter": 0},
}
VCPUS = (1, 2)
BUFFERS = ("bytes", "super-packets")
ADDITIONS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "2 ms of RTT": {"path": {"rtt": "12ms"}},
    "interrupts after 200 us": {"nic": {"coalesce": "200us"}},
}
PACKET_BYTES, SUPER_PACKET_BYTES = 1514, 65536


class Testbed(NamedTuple):
    schedule: str
    vcpus: int
    buffer: str
    adds: str

    @property
    def rtt_ms(self) -> int:
        return 12 if "RTT" in self.adds else 10

    @property
    def grids(self) -> list[dict[str, Any]]:
        """The cells of figure fingerprint in this testbed."""
        study = _fingerprint()
        base = study.fields(Scale.QUICK, "virtual")
        assert base is not None
        common = {key: value for key, value in base.items() if key != "grids"}
        changes = override({"contention": SCHEDULES[self.schedule] | {"vcpus": self.vcpus}}, ADDITIONS[self.adds])
        return [
            override(override(common, one), changes)
            for of_figure in base["grids"]
            if "driver" not in of_figure["contention"]
            for one in self._with_buffer(of_figure)
        ]

    def _with_buffer(self, grid: dict[str, Any]) -> Iterator[dict[str, Any]]:
        if grid["flows"] == [{"cc": "cubic"}]:  # has 12 BDP in the paper's figure 5
            yield grid
            return
        bandwidths = grid.get("path", {}).get("bandwidth", "100mbit")
        for bandwidth in bandwidths if isinstance(bandwidths, list) else [bandwidths]:
            bdp_bytes = int(bandwidth.removesuffix("mbit")) * self.rtt_ms * 1000 / 8
            buffer = "1bdp" if self.buffer == "bytes" else f"{round(bdp_bytes / PACKET_BYTES)}sp"
            yield override(grid, {"path": {"bandwidth": bandwidth, "buffer": buffer}})

    def where(self, of_figure: dict[str, Any]) -> dict[str, Any]:
        """Return which cells decide a claim here, of those that decide it in figure fingerprint."""
        kept = {axis: value for axis, value in of_figure.items() if axis not in ("driver", "length_jitter")}
        if "buffer_bdp" in kept:
            times = SUPER_PACKET_BYTES / PACKET_BYTES
            kept["buffer_bdp"] = 1 if self.buffer == "bytes" else f"{0.9 * times:.0f}-{1.1 * times:.0f}"
        return {**kept, "rtt_ms": self.rtt_ms, "vcpus": self.vcpus}


def _fingerprint() -> model.Study:
    (study,) = model.of_paper("2brobust", ["fingerprint"])
    return study


def halves(claims: list[str]) -> tuple[list[str], list[str]]:
    """Return the claims on which a testbed is chosen, and those on which it is tested."""
    drawn = sorted(claims, key=lambda claim: hashlib.sha256(claim.encode()).hexdigest())
    return drawn[: len(drawn) // 2], drawn[len(drawn) // 2 :]


def decided(testbed: Testbed, tables: Tables, claims: dict[str, Claim]) -> Iterator[dict[str, Any]]:
    """Yield a row for each claim: its verdict in this testbed, and the part of its parts that holds."""
    evidence = Evidence(tables, list(dict.fromkeys(run.id for run in Grid({"grids": testbed.grids}).runs())))
    for block in _fingerprint().twins:
        here = twins.Value(name="", where=testbed.where(block.values[0].where))
        for twin in twins.decided([block.model_copy(update={"values": (here,)})], claims, evidence):
            parts = [holds for _, holds in twin.parts] or [twin.verdict == HOLDS]
            yield {
                **testbed._asdict(), "claim": twin.claim, "verdict": twin.outcome, "holds": sum(parts) / len(parts),
                "n": twin.n,
            }  # fmt: skip


def ranking(decisions: pl.DataFrame) -> pl.DataFrame:
    """Return the testbeds, the best in the half of the claims on which one is chosen first."""
    chosen, tested = halves(decisions["claim"].unique().sort().to_list())
    return (
        decisions.group_by(Testbed._fields)
        .agg(
            chosen_on=pl.col("holds").filter(pl.col("claim").is_in(chosen)).mean(),
            tested_on=pl.col("holds").filter(pl.col("claim").is_in(tested)).mean(),
            whole=(pl.col("verdict") == HOLDS).sum(),
        )
        .sort("chosen_on", *Testbed._fields, descending=[True, *[False] * len(Testbed._fields)])
        .with_columns(pl.col("chosen_on", "tested_on").round(2))
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="for data and tables; what the data lack is measured")
    parser.add_argument("--jobs", type=int, help="runs at a time; else one for each CPU")
    given = parser.parse_args()
    every = itertools.starmap(Testbed, itertools.product(SCHEDULES, VCPUS, BUFFERS, ADDITIONS))
    testbeds = [one for one in every if (one.schedule, one.vcpus) != ("idle vCPU", 2)]
    tables = Tables(measured(given.out / "data", [grid for one in testbeds for grid in one.grids], given.jobs))
    claims = {claim.id: claim for study in model.of_paper("2brobust") for claim in study.claims}
    decisions = pl.DataFrame([row for one in testbeds for row in decided(one, tables, claims)])
    ranked = ranking(decisions)
    decisions.write_csv(given.out / "claims.csv")
    ranked.write_csv(given.out / "ranking.csv")
    chosen, tested = halves(decisions["claim"].unique().sort().to_list())
    print(f"chosen on {', '.join(chosen)}; tested on {', '.join(tested)}")
    with pl.Config(tbl_rows=-1, tbl_hide_dataframe_shape=True, tbl_hide_column_data_types=True, fmt_str_lengths=40):
        print(ranked)
    together = ranked.select(pl.corr("chosen_on", "tested_on", method="spearman")).item()
    print(f"rank correlation of the two halves over {len(ranked)} testbeds: {together:.2f}")


if __name__ == "__main__":
    main()
