#!/usr/bin/env python3
"""Make the documentation's numbers: write tables from data, say which data are stale, and measure them again.

    .venv/bin/python scripts/evidence.py            # write the tables of the pages (`make format`)
    .venv/bin/python scripts/evidence.py --check    # refuse pages and data that were changed by hand (`make lint`)
    .venv/bin/python scripts/evidence.py --stale    # which data rest on what has changed, and what they would cost
    .venv/bin/python scripts/evidence.py --make     # measure what is stale again (`make evidence`)
    .venv/bin/python scripts/evidence.py --make --only findings --jobs 1
    .venv/bin/python scripts/evidence.py --confirm  # seconds: after a change that should have changed no packet

docs/data/evidence.toml says how each directory of docs/data is made and what it rests on; its provenance.json says
when and from what it was made, with a hash of every file. docs/data/tables.toml says how a table is made of them. In a
page a table stands between `<!-- made: NAME -->` and `<!-- end -->`; on one line, these hold one number.
"""

import argparse
import csv
import hashlib
import json
import os
import re
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import evidence_samples
import evidence_tables

from brobust import files
from brobust.host import machine

ROOT = Path(__file__).parents[1]
DATA = ROOT / "docs" / "data"
KEPT = ROOT / "build" / "evidence"
"""Where datasets are measured: NAME-HASH, so that an interrupted one is completed, and never by other sources."""
MARKED = re.compile(r"<!-- made: ([a-z0-9-]+) -->(.*?)<!-- end -->", re.DOTALL)
MEASURING = ("virtual time", "kernel", "kept stack", "controls", "steady")
"""Names of [sources] that decide what packets a run in virtual time sends."""
REMEDY = "`make format` writes it"
# Constant columns of a sheet are taken out of it and named in provenance.json: a cell has some forty.
KEPT_COLUMNS = ("figure", "metric", "claim", "n", "median", "low", "high", "throughput_mbps", "low_mbps", "high_mbps")


def specifications() -> dict[str, Any]:
    return tomllib.loads((DATA / "evidence.toml").read_text())


def _tables() -> dict[str, Any]:
    return tomllib.loads((DATA / "tables.toml").read_text())


def pages() -> dict[Path, str]:
    """Return each page that has something made of data, as it should be."""
    tables, found = _tables(), {}
    for page in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*.md")]):
        text = page.read_text()
        if "<!-- made:" in text:
            found[page] = MARKED.sub(partial(_made, tables, page), text)
    return found


def sheets() -> dict[Path, str]:
    """Return each sheet that is made of others, as it should be."""
    return {DATA / "papers-beside-ours.csv": evidence_tables.papers_sheet(DATA)}


def _made(tables: dict[str, Any], page: Path, mark: re.Match[str]) -> str:
    name, before = mark.groups()
    if name not in tables:
        sys.exit(f"evidence: {_shown(page)}: no table {name!r} in docs/data/tables.toml")
    described = {**tables.get(tables[name].get("like", ""), {}), **tables[name]}
    try:
        table = evidence_tables.made(described, DATA, page)
    except KeyError as missing:
        sys.exit(
            f"evidence: {_shown(page)}: table {name!r}: neither its keys nor the columns of its sheet have {missing}; "
            "scripts/evidence_tables.py explains the keys"
        )
    except (LookupError, ValueError, OSError) as error:
        sys.exit(f"evidence: {_shown(page)}: table {name!r}: {error}")
    return f"<!-- made: {name} -->" + (f"\n{table}\n" if "\n" in before else table.strip()) + "<!-- end -->"


def problems() -> Iterator[str]:
    """Yield a line for each page and each file of data that is not what it was made."""
    on_pages: set[str] = set()
    for page, text in pages().items():
        now = page.read_text()
        on_pages |= {here[1] for here in MARKED.finditer(now)}
        for here, made in zip(MARKED.finditer(now), MARKED.finditer(text), strict=True):
            if here[0] != made[0]:
                there, wanted = here[0].splitlines(), made[0].splitlines()
                first = next((a for a, b in zip(there, wanted, strict=False) if a != b), "its length")
                yield f"{_shown(page)}: table {here[1]!r} is not what its data say, {REMEDY}: {first[:110]}"
    for sheet, text in sheets().items():
        if not sheet.exists() or sheet.read_text() != text:
            yield f"{_shown(sheet)}: not what its data say, {REMEDY}"
    for name in sorted(_tables().keys() - on_pages):
        yield f"docs/data/tables.toml: no page has table {name!r}; write <!-- made: {name} --> and <!-- end --> there"
    for study, claim in evidence_tables.undecided(_tables()["claims"], DATA):
        yield f"docs/data/claims.csv: no data have a verdict on {claim} of {study}; `make evidence` decides it again"
    for record in sorted(DATA.glob("*/provenance.json")):
        known = json.loads(record.read_text())["files"]
        for name in _not_as_made(known):
            why = f"not what was measured ({_shown(record)} has its hash)" if (ROOT / name).exists() else "missing"
            yield f"{name}: {why}; `make evidence` makes it again"
        present = {_shown(file) for file in record.parent.iterdir() if file != record}
        for name in sorted(present - set(known)):
            yield f"{name}: {_shown(record)} does not know it"


def sources(names: list[str], known: dict[str, list[str]]) -> dict[str, str]:
    """Return a hash of what each of these names stands for: the contents of its files in this checkout."""
    return {name: _hash_of_files(known.get(name, [name])) for name in names}


def _hash_of_files(paths: list[str]) -> str:
    listed = subprocess.run(["git", "ls-files", "-z", "--", *paths], cwd=ROOT, capture_output=True, check=True).stdout
    tracked = sorted(name for name in listed.decode().split("\0") if name and (ROOT / name).is_file())
    if not tracked:
        sys.exit(f"evidence: nothing is tracked at {', '.join(paths)}, which docs/data/evidence.toml names")
    return hashlib.sha256("".join(f"{name} {_hash_of(ROOT / name)}\n" for name in tracked).encode()).hexdigest()[:12]


def stale(name: str, data: dict[str, Any]) -> list[str]:
    """Return why this directory of data has to be made again; nothing if it has not."""
    record = DATA / name / "provenance.json"
    if not record.exists():
        return ["never made"]
    made = json.loads(record.read_text())
    if made["how"] != "measured":
        return ["its numbers were copied from a page, and never made by this command"]
    changed = [f"{one} has changed" for one in _changed(made, data)]
    changed += [f"{one} is not what was measured" for one in _not_as_made(made.get("files", {}))]
    return changed + (["its command has changed"] if made["command"] != data["command"] else [])


def _not_as_made(known: dict[str, str]) -> list[str]:
    """Return which of these files are missing or have another hash: changed by hand, or by a call that was killed
    before it wrote down what it had made."""
    return [name for name, hashed in known.items() if not (ROOT / name).exists() or _hash_of(ROOT / name) != hashed]


def _changed(made: dict[str, Any], data: dict[str, Any]) -> list[str]:
    """Return the names of what these data rest on that is not what it was."""
    now = sources(data["rests_on"], specifications()["sources"])
    return [one for one in now if made["sources"].get(one) != now[one]]


def confirm(name: str, data: dict[str, Any]) -> None:
    """Measure some of the runs again. If they send the same packets, the data stand, whatever has been moved or renamed
    since; what judges them (rules, studies, benchmarks) is not confirmed by that."""
    record = DATA / name / "provenance.json"
    made = json.loads(record.read_text()) if record.exists() else {}
    named = [one for one in _changed(made, data) if one in MEASURING] if made.get("samples") else []
    if not named:
        return
    samples = made["samples"]
    if difference := evidence_samples.changed(samples):
        print(f"evidence: {name}: stale: {difference}")
        return
    made["sources"] |= sources(named, specifications()["sources"])
    made["confirmed"] = {"commit": _commit(data["rests_on"]), "date": f"{datetime.now(UTC):%Y-%m-%d}", "of": named}
    files.write(record, json.dumps(made, indent=1) + "\n")
    print(f"evidence: {name}: {len(samples)} runs have sent the packets that they sent before: confirmed")


def minutes(name: str, data: dict[str, Any], out: Path) -> float | None:
    """Return how many minutes of two cores a directory of data takes: what it took last time, else what a dry run says,
    which on a busy machine is too much; None if nobody knows."""
    record = DATA / name / "provenance.json"
    if record.exists() and (took := json.loads(record.read_text()).get("minutes")):
        return float(took)
    if not re.match(r"brobust (reproduce|sweep) ", data["command"]):
        return None
    done = _shell(_command(data, out, 2).split("\n")[0] + " --dry-run", capture=True)
    if found := re.search(r"take about (\d+) (s|minutes)", done.stdout + done.stderr):
        return int(found[1]) / (60 if found[2] == "s" else 1)
    return 0.0 if done.returncode == 0 else None


def make(name: str, data: dict[str, Any], jobs: int) -> None:
    """Measure a directory of data, or the rest of it, and take its sheets and figures into the repository."""
    out, begun = _out(name, data), time.monotonic()
    wanted = {one: f"docs/data/{name}/{Path(one).name}" for one in data["take"]} | data.get("figures", {})
    # As they are now: who goes on working while this measures changes them for the next data.
    rests_on, commit = sources(data["rests_on"], specifications()["sources"]), _commit(data["rests_on"])
    out.mkdir(parents=True, exist_ok=True)
    since = time.time() - 1  # a file's time is that of the clock's last tick
    done = _shell(_command(data, out, jobs))
    # Status 1 of `brobust reproduce` says that a claim differs.
    succeeded = (0, 1) if "brobust reproduce" in data["command"] else (0,)
    # It is also that of a full disk, which leaves what an earlier call has written.
    written = [one for one in wanted if (out / one).exists() and (out / one).stat().st_mtime >= since]
    if done.returncode not in succeeded or len(written) < len(wanted):
        # Not done here: it may have taken hours, and a study may be changed back.
        hint = f"; if a study has other cells than before: rm -rf {_shown(out)}" if done.returncode == 2 else ""
        sys.exit(f"evidence: {name}: its command failed, or has not written all of {', '.join(wanted)}{hint}")
    kernels, seconds = _measured(out)
    hashes: dict[str, str] = {}
    constant: dict[str, str] = {}
    for source, target in wanted.items():
        constant |= _taken(out / source, ROOT / target, trims=source in data["take"])
        hashes[target] = _hash_of(ROOT / target)
    record = {
        "how": "measured", "command": data["command"], "commit": commit,
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "machine": f"{len(os.sched_getaffinity(0))} cores of {machine.cpu()}, Linux {os.uname().release}",
        "kernels": kernels, "minutes": round((seconds / 2 if seconds else time.monotonic() - begun) / 60, 1),
        "sources": rests_on,
        "everywhere": constant, "files": hashes, "samples": evidence_samples.taken(out),
    }  # fmt: skip
    (DATA / name).mkdir(exist_ok=True)  # all that it takes may belong elsewhere
    files.write(DATA / name / "provenance.json", json.dumps(record, indent=1) + "\n")
    print(f"evidence: {name}: made, {record['minutes']} minutes of two cores")


def _taken(source: Path, target: Path, trims: bool = True) -> dict[str, str]:
    """Copy a file; of a sheet that is trimmed only the columns that say something. Return the others, with their one
    value."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.suffix != ".csv" or not trims:
        target.write_bytes(source.read_bytes())
        return {}
    with source.open(newline="") as file:
        sheet = csv.DictReader(file)
        rows, names = list(sheet), list(sheet.fieldnames or [])
    same = [one for one in names if one not in KEPT_COLUMNS and len(rows) > 1 and len({row[one] for row in rows}) == 1]
    kept = [one for one in names if one not in same] if source.stem in ("cells", "metrics") else names
    with target.open("w", newline="") as file:
        writer = csv.DictWriter(file, kept, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows({one: _short(row[one]) for one in kept} for row in rows)
    return {one: rows[0][one] for one in names if one not in kept and rows[0][one]}


def _short(value: str) -> str:
    """Return a number with six digits: more is noise in a repository."""
    return f"{float(value):.6g}" if re.fullmatch(r"-?\d+\.\d{4,}(e-?\d+)?", value) else value


def _out(name: str, data: dict[str, Any]) -> Path:
    # What only judges is no reason to measure again. A study that measures other cells is refused by its command, and
    # make() says what to do.
    measuring = [one for one in data["rests_on"] if one != "rules" and not one.startswith("python/brobust/studies")]
    found = json.dumps([data["command"], sources(measuring, specifications()["sources"])])
    return KEPT / f"{name}-{hashlib.sha256(found.encode()).hexdigest()[:8]}"


def _command(data: dict[str, Any], out: Path, jobs: int) -> str:
    return str(data["command"]).replace("{out}", str(out)).replace("{jobs}", str(jobs))


def _shell(command: str, capture: bool = False) -> subprocess.CompletedProcess[str]:
    path = f"{ROOT / '.venv/bin'}:{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-c", command], cwd=ROOT, env={**os.environ, "PATH": path}, text=True, capture_output=capture,
        check=False,
    )  # fmt: skip


def _measured(out: Path) -> tuple[dict[str, str], float]:
    """Return name and hash of the kernels that datasets were measured on, and how long their runs took, in seconds of
    one core: as one sum, in however many sittings."""
    kernels: dict[str, str] = {}
    seconds = 0.0
    for dataset in evidence_samples.datasets(out):
        runs = dataset.runs().unique("run")
        if failed := runs.filter(outcome="failed").height:
            sys.exit(f"evidence: {failed} of {runs.height} runs of {dataset.directory} failed; --make repeats them")
        of_runs = runs.select("kernel", "kernel_hash").unique().sort("kernel").rows()
        kernels |= {name: (hashed or "")[:12] for name, hashed in of_runs}
        seconds += float(runs["wall_s"].sum())
    return kernels, seconds


def _commit(names: list[str]) -> str:
    """Return the commit, and whether what the data rest on was changed since."""
    known = specifications()["sources"]
    changed = _git("status", "--porcelain", "--", *(path for name in names for path in known.get(name, [name])))
    return _git("rev-parse", "--short", "HEAD") + ("-changed" if changed else "")


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()


def _hash_of(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()[:16]


def _shown(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the documentation's numbers.")
    parser.add_argument("--check", action="store_true", help="Only say what is not as it was made.")
    parser.add_argument("--stale", action="store_true", help="Say which data rest on what has changed since.")
    parser.add_argument(
        "--confirm",
        action="store_true",
        help="Measure some runs of stale data again: if their packets are the same, they stand.",
    )
    parser.add_argument("--make", action="store_true", help="Measure what is stale, or what --only names, again.")
    parser.add_argument("--only", action="append", metavar="NAME", help="Only this data; may be repeated.")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="Runs side by side.")
    given = parser.parse_args()
    every = specifications()["data"]
    if unknown := [name for name in given.only or () if name not in every]:
        parser.error(
            f"--only {unknown[0]}: docs/data/evidence.toml has no [data.{unknown[0]}]; it has {', '.join(every)}"
        )
    if given.check:
        found = list(problems())
        for one in found:
            print(f"evidence: {one}")
        sys.exit(bool(found))
    if given.confirm:
        for name in given.only or every:
            confirm(name, every[name])
    if given.stale or (given.make and not given.confirm):
        chosen = {name: every[name] for name in given.only or every}
        reasons = {name: stale(name, data) for name, data in chosen.items()}
        wanted = [name for name in chosen if reasons[name] or given.only]
        _say(wanted, chosen, reasons)
        for name in wanted if given.make and not given.stale else ():
            make(name, chosen[name], given.jobs)
    if not given.stale:
        for made, text in (pages() | sheets()).items():
            if not made.exists() or made.read_text() != text:
                files.write(made, text)


def _say(wanted: list[str], chosen: dict[str, Any], reasons: dict[str, list[str]]) -> None:
    """Print what is to be made, why, and how long that takes."""
    costs = {name: minutes(name, chosen[name], _out(name, chosen[name])) for name in wanted}
    for name, cost in costs.items():
        about = "nobody knows how long it takes" if cost is None else f"{cost:.0f} minutes of two cores"
        print(f"{name}: {'; '.join(reasons[name]) or 'nothing has changed'} ({about})")
    hours, unknown = sum(cost or 0 for cost in costs.values()) / 60, list(costs.values()).count(None)
    rest = f", and {unknown} of which nobody knows" if unknown else ""
    print(f"evidence: {len(wanted)} of {len(chosen)} to make: {hours:.1f} hours of two cores{rest}")


if __name__ == "__main__":
    main()
