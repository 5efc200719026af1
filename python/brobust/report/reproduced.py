"""What `brobust reproduce` has written into a directory, read back for reports."""

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from pydantic import BaseModel, TypeAdapter

from brobust import files
from brobust.analysis.claims import VERDICTS, Verdict
from brobust.analysis.twins import Twin
from brobust.errors import BadInput
from brobust.study.model import Study, of_paper


class _About(BaseModel):
    """What `brobust reproduce` writes into reproduction.json."""

    paper: str
    of: str = ""
    """What the user named: the paper, or the path of studies; empty: the paper."""
    scale: str
    backend: str
    figures: list[str]
    studies: list[Study] = []
    """Those that were measured; none: the paper's, as they are in this version."""
    asked: list[str] = []


class Reproduced:
    def __init__(self, directory: Path):
        self.directory = directory
        try:
            about = files.read(directory / "reproduction.json", files.MAX_TEXT)
            written = _About.model_validate_json(about)
            self.about = written.model_dump(exclude={"studies"})
            lines = files.read(directory / "claims.jsonl", files.MAX_TEXT).splitlines()
            self.claims = [TypeAdapter(Verdict).validate_json(line) for line in lines]
            twins = directory / "twins.jsonl"
            lines = files.read(twins, files.MAX_TEXT).splitlines() if twins.exists() else []
            self.twins = [TypeAdapter(Twin).validate_json(line) for line in lines]
            found = {claim.verdict for claim in self.claims} | {twin.verdict for twin in self.twins}
            if unknown := found - set(VERDICTS):
                raise ValueError(f"unknown verdicts: {unknown}")
        except (BadInput, ValueError, RecursionError):
            command = f"brobust reproduce PAPER --out {shlex.quote(str(directory))}"
            raise BadInput(f"{directory} holds no finished reproduction; `{command}` makes one") from None
        self.studies = written.studies or of_paper(written.paper)


def twin_tables(twinned: Sequence[Twin]) -> Iterator[tuple[str, list[str], dict[str, dict[str, Twin]]]]:
    """Yield each variable with its values, and by claim what each value makes of it."""
    for variable in dict.fromkeys(twin.variable for twin in twinned):
        of_it = [twin for twin in twinned if twin.variable == variable]
        by_claim: dict[str, dict[str, Twin]] = {}
        for twin in of_it:
            by_claim.setdefault(twin.claim, {})[twin.value] = twin
        yield variable, list(dict.fromkeys(twin.value for twin in of_it)), by_claim
