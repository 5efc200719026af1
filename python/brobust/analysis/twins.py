"""Twins: a paper's claims decided again on cells that have another value of one variable, which the paper does not give
or which was here chosen otherwise. If the verdict changes with the value, the variable decides the claim.

A twin has no rules of its own: it takes the checks of the claim as they are, and only selects other cells.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, Field

from brobust.analysis.claims import DIFFERS, HOLDS, IN_PART, NOT_MEASURABLE, Claim, Verdict, decide
from brobust.analysis.metrics import Evidence


class Value(BaseModel, extra="forbid", frozen=True):
    """One value of the variable, and the cells that have it."""

    name: str
    where: dict[str, Any] = Field(default_factory=dict)
    """Axes and their values, in place of those in the claim's checks."""
    controls: dict[str, str] = Field(default_factory=dict)
    """Controls that take the place of others: { brb_bbr3_robust = "brb_bbr3_paper" }."""


class Twins(BaseModel, extra="forbid", frozen=True):
    """Claims, a variable, and its values."""

    variable: str
    of: tuple[str, ...]
    """Ids of the paper's claims, in any of its studies."""
    values: tuple[Value, ...]


@dataclass(frozen=True)
class Twin:
    """What one value of the variable makes of a claim."""

    claim: str
    variable: str
    value: str
    verdict: str
    parts: tuple[tuple[str, bool], ...]
    measured: str
    n: int
    n_per_cell: tuple[int, int] | None
    duration_s: tuple[float, float] | None

    @property
    def outcome(self) -> str:
        """The verdict, with the parts that hold."""
        if self.verdict != IN_PART:
            return self.verdict
        return f"{IN_PART} ({', '.join(part for part, holds in self.parts if holds)})"


def decided(twins: Sequence[Twins], claims: Mapping[str, Claim], evidence: Evidence) -> Iterator[Twin]:
    """Yield what each value makes of each claim."""
    for one in twins:
        for name in one.of:
            for value in one.values:
                it = decide(_measured(with_value(claims[name], value), evidence), evidence)
                yield Twin(
                    name, one.variable, value.name, it.verdict, it.parts, it.measured, it.n, it.n_per_cell,
                    it.duration_s,
                )  # fmt: skip


def with_value(claim: Claim, value: Value) -> Claim:
    """Return the claim with checks that select the cells of this value."""
    content = claim.model_dump(exclude_unset=True)
    content["checks"] = [_moved(check, value) for check in content.get("checks", ())]
    return Claim.model_validate(content)


def _measured(claim: Claim, evidence: Evidence) -> Claim:
    """Return the claim without those of its parts of which the study has no cells: it measures fewer than the claim."""
    kept = [check for check in claim.checks if not check.part or check.find(evidence).holds is not None]
    return claim.model_copy(update={"checks": tuple(kept)})


def _moved(check: dict[str, Any], value: Value) -> dict[str, Any]:
    moved = {**check, "where": {**check.get("where", {}), **value.where}}
    for key in ("where", "unless", "than"):
        if "cc" in moved.get(key, {}):
            cc = moved[key]["cc"]
            several = [value.controls.get(one, one) for one in (cc if isinstance(cc, list) else [cc])]
            moved[key] = {**moved[key], "cc": several if isinstance(cc, list) else several[0]}
    return moved


def decided_by(verdict: Verdict, twins: Sequence[Twin]) -> str:
    """Return in words which variable decides a claim, and with which of its values the claim holds; or what was tried
    and changed nothing."""
    mine = [twin for twin in twins if twin.claim == verdict.claim and twin.verdict != NOT_MEASURABLE]
    deciding, tried = [], []
    for variable in dict.fromkeys(twin.variable for twin in mine):
        outcomes: dict[str, list[str]] = {}
        for twin in mine:
            if twin.variable == variable:
                outcomes.setdefault(twin.outcome, []).append(twin.value)
        if len(outcomes) > 1:
            ordered = sorted(outcomes.items(), key=lambda one: _rank(one[0]))
            shown = "; ".join(f"{outcome} with {', '.join(values)}" for outcome, values in ordered)
            deciding.append(f"{variable}: {shown}")
        elif outcomes:
            ((outcome, values),) = outcomes.items()
            tried.append(f"{variable} ({', '.join(values)}: {outcome})")
    words = deciding or ([f"none found; tried {'; '.join(tried)}"] if tried else [])
    if verdict.see:
        words.append(f"see {', '.join(verdict.see)} of the findings")
    return ". ".join(words)


def _rank(outcome: str) -> tuple[int, str]:
    order = (HOLDS, IN_PART, DIFFERS)
    return order.index(outcome.partition(" (")[0]), outcome
