"""The documentation's numbers are made of data: what was changed by hand is found, what gives no table is refused."""

import csv
import json
import os
import re
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import evidence
import evidence_samples
import evidence_tables
import polars as pl
import pytest

from brobust.study import model

ROOT = Path(__file__).parents[1]


def _other_digit(file: Path, number: str | None = None) -> None:
    """Change the last digit of a number; None: of the first that is measured in a made table or a sheet."""
    text = file.read_text()
    if number is None:
        measured = re.search(r"(?<=\[)\d+\.\d+|(?<=,)\d+\.\d{3,}", text)
        assert measured is not None
        number = measured[0]
    assert number in text
    file.write_text(text.replace(number, number[:-1] + str((int(number[-1]) + 1) % 10), 1))


@pytest.mark.parametrize(
    "changed",
    [
        # What is made of data, while the data are as they were; `make lint` looks at the pages and data that there are.
        {"docs/reproduction.md": "100 x 20", "docs/repair-measured.md": None, "docs/data/papers-beside-ours.csv": None},
        {"docs/data/bbq/verdicts.csv": None, "docs/data/2brobust-buffers/cells.csv": None},
    ],
    ids=["pages", "data"],
)
def test_a_number_that_was_changed_by_hand_is_found(copied: Path, changed: dict[str, str | None]) -> None:
    for file, number in changed.items():
        _other_digit(copied / file, number)
    found = list(evidence.problems())
    assert all(any(line.startswith(file) for line in found) for file in changed), found


def test_a_number_that_was_changed_in_data_and_page_alike_is_found_too(copied: Path) -> None:
    _other_digit(copied / "docs/data/bbq/verdicts.csv")
    for page, text in (evidence.pages() | evidence.sheets()).items():
        page.write_text(text)
    assert [line for line in evidence.problems() if not line.startswith("docs/data/bbq/verdicts.csv")] == []
    assert len(list(evidence.problems())) == 1


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "d").mkdir()
    (tmp_path / "d/cells.csv").write_text(
        "share,cc,n,throughput_mbps,low_mbps,high_mbps\n"
        "1.0,bbr,3,94.26,94.1,94.4\n0.25,bbr,3,1.274,1.2,1.3\n1.0,cubic,3,95.6,95.5,95.7\n"
    )
    record = {"how": "measured", "date": "2026-11-24", "commit": "abc", "everywhere": {"rtt_ms": "10.0"}, "files": {}}
    (tmp_path / "d/provenance.json").write_text(json.dumps(record))
    return tmp_path


TABLE: dict[str, Any] = {"kind": "cells", "data": "d", "rows": ["share"], "columns": ["cc"], "digits": 1}


def test_a_table_has_a_row_for_each_value_and_says_where_it_is_from(data: Path) -> None:
    table = {**TABLE, "where": {"rtt_ms": 10}, "order": {"cc": ["cubic", "bbr"]}, "names": {"share": "CPU"}}
    lines = evidence_tables.made(table, data, data / "page.md").splitlines()
    assert lines[0] == "| CPU | cubic | bbr |"
    assert lines[2:4] == ["| 100 % | 95.6 | 94.3 |", "| 25 % | | 1.3 |"]
    assert lines[-1] == "n = 3. Data: [d](d), measured 2026-11-24 at abc."
    one = {**TABLE, "kind": "number", "where": {"share": 0.25, "cc": "bbr"}, "interval": True}
    assert evidence_tables.made(one, data, data / "page.md") == "1.3 [1.2, 1.3]"
    (data / "d/rows.csv").write_text("control,10 BDP\nbbr,0.63; 62; 35 ms\n")
    second = {"kind": "number", "data": "d", "sheet": "rows.csv", "value": "10 BDP", "nth": 2}
    assert evidence_tables.made(second, data, data / "page.md") == "62"


@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        ({"kind": "cels"}, "kind = 'cels': there is no such kind, only cells, number"),
        ({"data": "gone"}, "docs/data/gone has no cells.csv; `make evidence ARGS='--only gone'` makes it"),
        ({"where": {"aqm": "red"}}, "no column 'aqm'"),
        ({"where": {"share": 0.3}}, "no row for"),
        ({"columns": []}, "2 rows for one cell; they differ in cc"),
    ],
)
def test_what_no_table_can_be_made_of_is_refused(data: Path, change: dict[str, Any], refusal: str) -> None:
    with pytest.raises((ValueError, LookupError), match=re.escape(refusal)):
        evidence_tables.made({**TABLE, **change}, data, data / "page.md")


def test_data_are_stale_if_what_they_rest_on_has_changed(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence, "sources", lambda names, known: dict.fromkeys(names, "now"))
    described = {"command": "true", "rests_on": ["rules", "kernel"]}
    assert evidence.stale("new", described) == ["never made"]
    record = copied / "docs/data/new/provenance.json"
    record.parent.mkdir()
    record.write_text(json.dumps({"how": "measured", "command": "true", "sources": {"rules": "now", "kernel": "then"}}))
    assert evidence.stale("new", described) == ["kernel has changed"]
    record.write_text(json.dumps({"how": "measured", "command": "true", "sources": {"rules": "now", "kernel": "now"}}))
    assert evidence.stale("new", described) == []
    sheet = record.with_name("cells.csv")
    sheet.write_text("cc,n\nbbr,3\n")
    made = {"how": "measured", "command": "true", "sources": {"rules": "now", "kernel": "now"}}
    record.write_text(json.dumps(made | {"files": {"docs/data/new/cells.csv": evidence._hash_of(sheet)}}))
    assert evidence.stale("new", described) == []
    sheet.write_text("cc,n\ncubic,3\n")  # as a call leaves it that was killed before it wrote down what it made
    assert evidence.stale("new", described) == ["docs/data/new/cells.csv is not what was measured"]
    assert any("new/cells.csv" in line and "`make evidence` makes it again" in line for line in evidence.problems())


def _measuring(monkeypatch: pytest.MonkeyPatch, status: int, writes: str) -> None:
    """Let each command change what data rest on while it runs, as somebody who goes on working does."""
    now = ["then"]

    def measured(command: str, capture: bool = False) -> subprocess.CompletedProcess[str]:
        now[0] = "later"
        if writes:
            Path(command.split()[-1], "cells.csv").write_text(writes)
        return subprocess.CompletedProcess(command, status)

    monkeypatch.setattr(evidence, "_shell", measured)
    monkeypatch.setattr(evidence, "_commit", lambda names: now[0])
    monkeypatch.setattr(evidence, "sources", lambda names, known: dict.fromkeys(names, now[0]))
    monkeypatch.setattr(evidence, "_out", lambda name, data: evidence.ROOT / "measured")


DESCRIBED = {"command": "brobust reproduce x --out {out}", "take": ["cells.csv"], "rests_on": ["rules", "kernel"]}


def test_data_rest_on_what_was_there_when_their_measurement_began(
    copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _measuring(monkeypatch, 0, "cc,n\nbbr,3\n")
    evidence.make("new", DESCRIBED, 1)
    made = json.loads((copied / "docs/data/new/provenance.json").read_text())
    assert made["sources"] == {"rules": "then", "kernel": "then"} and made["commit"] == "then"


def test_a_command_that_writes_nothing_leaves_no_data_of_an_earlier_one(
    copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk is status 1, as a claim that differs is."""
    _measuring(monkeypatch, 1, "")
    (copied / "measured").mkdir()
    (copied / "measured/cells.csv").write_text("cc,n\nbbr,3\n")
    os.utime(copied / "measured/cells.csv", (0, 0))
    with pytest.raises(SystemExit, match="has not written all of cells"):
        evidence.make("new", DESCRIBED, 1)
    assert not (copied / "docs/data/new").exists()


def test_numbers_of_a_series_of_which_runs_failed_are_not_taken(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _measuring(monkeypatch, 0, "cc,n\nbbr,nan\n")
    runs = pl.DataFrame({"run": ["a-0", "a-1"], "outcome": ["ok", "failed"]})
    dataset = SimpleNamespace(runs=lambda: runs, directory="x/data")
    monkeypatch.setattr(evidence_samples, "datasets", lambda out: [dataset])
    with pytest.raises(SystemExit, match=r"1 of 2 runs of x/data failed"):
        evidence.make("new", DESCRIBED, 1)
    assert not (copied / "docs/data/new").exists()


def test_where_a_command_refuses_what_was_measured_it_is_said_how_to_measure_it_again(
    copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of a study whose cells have changed; a command that failed otherwise keeps what it has measured."""
    for status, words in ((2, "cells.csv; if a study has other cells than before: rm -rf measured"), (1, "cells.csv")):
        _measuring(monkeypatch, status, "")
        with pytest.raises(SystemExit, match=f"{words}$"):
            evidence.make("new", DESCRIBED, 1)


def test_constant_columns_of_cells_are_said_once(tmp_path: Path) -> None:
    (tmp_path / "cells.csv").write_text("aqm,cc,n,throughput_mbps\nnone,bbr,3,1.23456789\nnone,cubic,3,2\n")
    assert evidence._taken(tmp_path / "cells.csv", tmp_path / "kept.csv") == {"aqm": "none"}
    assert (tmp_path / "kept.csv").read_text() == "cc,n,throughput_mbps\nbbr,3,1.23457\ncubic,3,2\n"


@pytest.mark.parametrize(
    ("kind", "value", "ours", "low", "high", "neutral", "nearness"),
    [
        ("is", "20", 19.0, 18.5, 20.1, "", "within our interval"),
        ("is", "20", 19.0, 18.5, 19.5, "", "within 10 %"),
        ("is", "20", 12.0, None, None, "", "within a factor of 2"),
        ("is", "20", 2.0, None, None, "", "further away"),
        ("is", "1.4", 0.9, None, None, "1", "on the other side of no effect"),
        ("is", "70", float("inf"), None, None, "", "further away"),
        ("at most", "11", 11.6, None, None, "", "bound not kept"),
        ("at least", "2", 3.6, None, None, "", "bound kept"),
        ("is", "20", None, None, None, "", ""),
    ],
)
def test_a_paper_s_number_is_near_ours_or_not(
    kind: str, value: str, ours: float | None, low: float | None, high: float | None, neutral: str, nearness: str
) -> None:
    row = {"kind": kind, "value": value, "neutral": neutral, "fitted": ""}
    assert evidence_tables.Number(row, ours, low, high).how_near == nearness
    assert evidence_tables.Number({**row, "fitted": "yes"}, ours, low, high).how_near == ""


def test_every_claim_of_a_paper_has_its_row_in_the_table_of_all_claims() -> None:
    with (ROOT / "docs/data/claims.csv").open(newline="") as file:
        listed = {(row["study"], row["claim"]) for row in csv.DictReader(file)}
    claims, made = evidence._tables()["claims"], evidence.specifications()["data"]
    of_ours = [name for study, names in claims["data"].items() if study not in claims["papers"] for name in names]
    for paper in claims["papers"]:
        ids = {claim.id.split(" ")[0].rstrip(",") for study in model.of_paper(paper) for claim in study.claims}
        # Its studies may have claims of ours, such as that the same is seen on real VMs.
        names = [name for name in of_ours if made[name]["command"].startswith(f"brobust reproduce {paper} ")]
        ours = set(evidence_tables._verdicts(ROOT / "docs/data", names))
        here, there = ids - ours, {claim for study, claim in listed if study == paper}
        assert here - there == set(), f"docs/data/claims.csv has a row, with few words, for each claim of {paper}"
        assert there - here == set(), f"docs/data/claims.csv has rows of claims that {paper} does not make"


def test_of_two_answers_to_what_decides_a_claim_the_first_data_s_counts(tmp_path: Path) -> None:
    (tmp_path / "claims.csv").write_text("study,claim,words,of\ns,R1,it collapses,\n")
    for name, schedule, verdict in (("many", "busy", "differs"), ("few", "busy", "holds"), ("few", "idle", "holds")):
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / "provenance.json").write_text("{}")
        (tmp_path / name / "verdicts.csv").write_text("claim,text,verdict,parts_that_hold\nR1,it collapses,differs,\n")
        with (tmp_path / name / "twins.csv").open("a") as file:
            file.write("claim,variable,value,verdict\n" * (file.tell() == 0) + f"R1,schedule,{schedule},{verdict}\n")
    [one] = evidence_tables.judged({"papers": ["s"], "data": {"s": ["many", "few"]}}, tmp_path)
    assert one.decided == "schedule: holds with idle"


def test_the_claims_of_a_study_need_not_stand_together(tmp_path: Path) -> None:
    (tmp_path / "claims.csv").write_text("study,claim,words,of\ns,R1,it falls,\nt,T1,it rises,\ns,R2,it stays,\n")
    (tmp_path / "d").mkdir()
    (tmp_path / "d/provenance.json").write_text("{}")
    (tmp_path / "d/verdicts.csv").write_text("claim,text,verdict,parts_that_hold\nR1,a,holds,\nR2,b,differs,\n")
    table: dict[str, Any] = {"papers": ["s", "t"], "data": {"s": ["d"]}}
    assert [one.claim for one in evidence_tables.judged(table, tmp_path)] == ["R1", "R2"]
    assert list(evidence_tables.undecided(table, tmp_path)) == [("t", "T1")]


def test_a_claim_has_an_anchor_of_its_own_and_its_row_says_only_what_is_unusual_in_its_study(tmp_path: Path) -> None:
    (tmp_path / "claims.csv").write_text("study,claim,words,of\ns,P1,a,\ns,P2,b,\ns,P3,c,\nours,P9,yes,\n")
    columns = "claim,text,verdict,basis,parts_that_hold,parts_that_do_not,schedule,buffer,pacing,kernel,runs,n\n"
    for name, rows in (
        ("d", "P1,a,holds,,,,exact,1 BDP,kernel,6.12,3\nP2,b,differs,,,,exact,1 BDP,kernel,6.12,3\n"
              "P3,c,holds,,,,exact,4 BDP,fq,6.12,3\n"),
        ("e", "P10,x,holds,,,,,,,,\nP9,y,holds,,,,,,,,\nP1,z,differs,,,,,,,,\n"),
    ):  # fmt: skip
        (tmp_path / name).mkdir()
        (tmp_path / name / "provenance.json").write_text('{"how": "measured"}')
        (tmp_path / name / "verdicts.csv").write_text(columns + rows)
    table: dict[str, Any] = {"kind": "claims", "papers": ["s"], "data": {"s": ["d"], "ours": ["e"]}}
    table["titles"] = {"s": "S|s.md", "ours": "Ours|o.md"}
    rows_of_paper = evidence_tables.made(table, tmp_path, tmp_path / "page.md").splitlines()
    assert rows_of_paper[2].endswith("with: exact, 1 BDP, paced by kernel, 6.12.")
    assert rows_of_paper[-1].startswith('| <a id="p3"></a>P3 | c | **holds** | | 3; 4 BDP; paced by fq | ')
    ours = evidence_tables.made({**table, "own": True}, tmp_path, tmp_path / "page.md").splitlines()
    assert "**: 2 hold, 0 hold in part, 1 differ, 0 not measurable. " in ours[0]
    assert [row.partition(" | **")[0] for row in ours[-3:]] == [
        '| <a id="ours-p1"></a>P1 | z', '| <a id="p9"></a>P9 | yes', '| <a id="p10"></a>P10 | x',
    ]  # fmt: skip


def test_a_claim_without_a_verdict_and_a_table_without_a_page_are_found(copied: Path) -> None:
    with (copied / "docs/data/claims.csv").open("a") as claims, (copied / "docs/data/tables.toml").open("a") as tables:
        claims.write("bbq,B99,what nobody decided,\n")
        tables.write('[mine]\nkind = "number"\n')
    assert [line.partition(";")[0] for line in evidence.problems()] == [
        "docs/data/tables.toml: no page has table 'mine'", "docs/data/claims.csv: no data have a verdict on B99 of bbq",
    ]  # fmt: skip


@pytest.mark.virtual
def test_what_was_measured_stands_if_some_of_its_runs_send_the_same_packets(brobust: Any, tmp_path: Path) -> None:
    done = brobust("run", "--cc", "cubic,bbr", "--share", "0.5", "--duration", "1s", "--repeat", "1", "--out", "data")
    assert done.returncode == 0, done.stderr
    samples = evidence_samples.taken(tmp_path)
    assert len(samples) == 2 and evidence_samples.changed(samples) == ""
    assert "other packets" in evidence_samples.changed([samples[0] | {"packet_hash": "0" * 20}])
    assert "'b'" in evidence_samples.changed([{"scenario": '{"flows": [{"cc": "b"}]}', "packet_hash": ""}])
