"""The same packets on every machine: hashes that an AMD EPYC gave, checked in.

They are the first 20 digits of `packet_hash` of `brobust demo`'s cells, repeat 0, seed 1. They are tied to the source
package and the tick; docs/virtual-time.md tells what may differ without changing them.
"""

import json
from pathlib import Path

import pytest

import brobust
from brobust.kernels import virtual as virtual_kernels

GOLDEN = json.loads((Path(__file__).parent / "golden.json").read_text())


@pytest.mark.virtual
@pytest.mark.parametrize("cc", GOLDEN["packet_hashes"])
def test_the_packets_are_those_of_every_other_machine(cc: str) -> None:
    kernel = virtual_kernels.find()
    tie, here = (GOLDEN["source"], GOLDEN["hz"]), (kernel.source, kernel.hz)
    if here != tie:
        pytest.skip(f"the hashes are those of {tie[0]} at {tie[1]} Hz, and {kernel.name} is of {here[0]} at {here[1]}")
    scenario = GOLDEN["scenario"]
    sent = {}
    for share in GOLDEN["packet_hashes"][cc]:
        result = brobust.run(
            {
                "kernel": kernel.name, "path": scenario["path"], "duration": scenario["duration"],
                "contention": {"share": share, "timeslice": scenario["timeslice"]}, "flows": [{"cc": cc}],
            }
        )  # fmt: skip
        sent[share] = result.runs["packet_hash"][0][:20]
    assert sent == GOLDEN["packet_hashes"][cc], f"{kernel.name} with SHA-256 {kernel.sha256}"
