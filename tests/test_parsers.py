"""Whatever a user's text, file or directory holds: it is taken, or refused in one line.

HYPOTHESIS_PROFILE=deep tries many more inputs (tests/conftest.py).
"""

import json
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from brobust import cli, units
from brobust.analysis import compare
from brobust.backends import memory, support
from brobust.cc import names as cc_names
from brobust.cli import measuring
from brobust.cli.options import grid_fields
from brobust.contention import recordings
from brobust.dataset import RUNS, TABLES, Dataset, Measured, parts
from brobust.errors import BrobustError, UnreadableFile
from brobust.kernels import virtual as virtual_kernels
from brobust.kernels import vm as vm_kernels
from brobust.report import html, table
from brobust.report.console import Console
from brobust.scenario import Grid, specs
from brobust.scenario.fields import FIELDS
from brobust.study import model

# What values are made of: near what is right, and far from it.
NEAR = """0 1 -1 2 0.5 .5 5. 25% 1% 1e3 1e-05 1e300 nan inf -inf 007 1_000 0x10 20mbit 1gbit 10ms 1s 3600s 1ns
576MHz 60kB 1bdp 4bdp 100p 83sp random ack auto none bulk rate onoff idle red codel fq_codel ecn noecn min= max=
target= interval= probability= cubic bbr bbr_robust brb_bbr1 brb_bbq alpha=5ms beta=1% stride=5 virtual vm
virtual-6.12 debian-6.12 host true false"""
FAR = [
    *"=:,#/.[]{}'\"\\ \0\n\t", "", "..", "[/y]", "[bold]", "\x1b[31m", "\u0663", "\u00bd", "\ufeff", "\u202e", "\ud800",
    "9" * 400, "1" * 5000 + "ms", "0." + "0" * 400 + "1",
]  # fmt: skip
WORDS = st.sampled_from([*NEAR.split(), *FAR])
TEXTS = st.lists(WORDS | st.text(max_size=6), max_size=6).flatmap(
    lambda words: st.sampled_from(["", " ", ":", ","]).map(lambda between: between.join(words))
)
# What a shell can give: no NUL, and halves of characters only as bytes.
ARGUMENTS = TEXTS.map(lambda text: text.replace("\0", "").encode(errors="replace").decode())
NUMBERS = (
    st.integers()
    | st.sampled_from([2**31, 2**32, 2**63, 2**64, -(2**63), 10**30])
    | st.floats()
    | st.sampled_from([0, 1, 2, 10, 0.0, 0.5, 1.0, 1e300, 5e-324])
)
TOML_TEXTS = TEXTS.map(lambda text: text.encode(errors="replace").decode())
LEAVES = TOML_TEXTS | NUMBERS | st.booleans() | st.dates()
OF_SCENARIOS = {part for name in FIELDS for part in name.split(".")} | {"senders", "grids"}
OF_STUDIES = """paper figure title about grid scale vm figures claims name kind x value where lines rule id text smoke
quick full metric cells at_least"""
NAMES = sorted(OF_SCENARIOS) + OF_STUDIES.split()
KEYS = st.sampled_from(NAMES) | st.text(max_size=5).map(lambda text: text.encode(errors="replace").decode())
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=12
)
TOML = st.dictionaries(KEYS, VALUES, max_size=6)


@contextmanager
def taken_or_refused() -> Iterator[None]:
    """A refusal of ours, in what will be one line."""
    try:
        yield
    except BrobustError as refusal:
        assert str(refusal).strip()


def _directory() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(
        prefix="brobust-parsers-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    )


@given(TEXTS | NUMBERS)
def test_a_quantity(given: object) -> None:
    for parse in (
        units.bits_per_second, units.nanoseconds, units.hertz, units.size_bytes, units.fraction, units.Buffer.parse
    ):  # fmt: skip
        try:
            found: Any = parse(given)
        except ValueError as refusal:
            assert "write for example" in str(refusal) and len(str(refusal)) < 250
            continue
        if isinstance(found, units.Buffer):
            assert 0 <= found.bytes(10**11, 10**10) < 10**24
            assert units.Buffer.parse(str(found)) == found


@given(TEXTS)
def test_a_phrase(text: str) -> None:
    for phrase in (specs.Aqm, specs.Pattern):
        try:
            found = phrase.parse(text)
        except ValueError:
            continue
        assert phrase.parse(str(found)) == found


@given(TEXTS | VALUES)
def test_changes_during_a_run(given: object) -> None:
    for parse in (units.bits_per_second, units.nanoseconds):
        try:
            specs.changes(given, parse)
        except ValueError as refusal:
            assert str(refusal)


def _use(grid: Grid) -> None:
    """What every command does with a grid before it measures."""
    tomli_w.dumps(grid.fields)
    for scenario in grid.scenarios[:20]:
        support.unsupported(scenario)
        memory.needed(scenario)
        assert scenario.describe() and scenario.hash
        cc_names.check_together(group.cc for group in scenario.flows)


ONE_FIELD = st.sampled_from(sorted(name for name, field in FIELDS.items() if field.is_axis))


@given(st.dictionaries(ONE_FIELD, ARGUMENTS, max_size=4))
def test_the_options_of_a_grid(given: dict[str, str]) -> None:
    with taken_or_refused():
        _use(Grid.from_flags(grid_fields(given)))


def _file(directory: str, name: str, content: bytes) -> Path:
    file = Path(directory) / name
    file.write_bytes(content)
    return file


def _toml(fields: dict[str, Any]) -> bytes:
    return tomli_w.dumps(fields).encode()


ENCODINGS = st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-32", "latin-1"])


def _encoded(text: str, encoding: str) -> bytes:
    return text.encode(encoding, errors="replace")


TOML_FILES = (
    TOML.map(_toml)
    | st.binary(max_size=60)
    | st.builds(_encoded, TOML.map(lambda fields: _toml(fields).decode()), ENCODINGS)
    | st.integers(1, 5000).map(lambda depth: b"a = " + b"[" * depth + b"]" * depth)
    | st.integers(1, 5000).map(lambda depth: b"[" + b".".join([b"a"] * depth) + b"]")
)


@given(TOML_FILES)
def test_a_scenario_file(content: bytes) -> None:
    with _directory() as directory, taken_or_refused():
        _use(Grid.from_flags({}, _file(directory, "scenario.toml", content)))


@given(TOML)
def test_the_fields_of_one_scenario(fields: dict[str, Any]) -> None:
    """Most grids are refused for a name that there is not: here all names are right."""
    known: dict[str, Any] = {}
    for row in FIELDS.values():
        if row.key in fields:
            (known.setdefault(row.table, {}) if row.table else known)[row.key] = fields[row.key]
    with taken_or_refused():
        _use(Grid.from_flags(known))


@given(TOML_FILES)
def test_a_study_file(content: bytes) -> None:
    with _directory() as directory, taken_or_refused():
        study = model.load(_file(directory, "study.toml", content)).on_kernels(["virtual-6.12"])
        for scale in model.Scale:
            for backend in ("virtual", "vm"):
                with taken_or_refused():
                    _use(model.grid([study], scale, backend))


@given(TOML)
def test_a_study_with_all_that_one_needs(fields: dict[str, Any]) -> None:
    told = {"paper": "p", "figure": "1", "title": "t", "scale": {"smoke": {}}, **fields}
    with _directory() as directory, taken_or_refused():
        study = model.load(_file(directory, "study.toml", _toml(told)))
        _use(model.grid([study], model.Scale.SMOKE, "virtual"))


CELLS = (TEXTS | NUMBERS.map(str)).map(lambda text: text.encode(errors="replace").decode().replace("\n", " "))
COLUMNS = st.sampled_from(["start_s", "duration_ms", "kind", "thread", "vcpu", "sender", "run"])


@given(st.lists(COLUMNS | TOML_TEXTS, max_size=5), st.lists(st.lists(CELLS, max_size=5), max_size=4), ENCODINGS)
def test_a_recording_as_csv(header: list[str], rows: list[list[str]], encoding: str) -> None:
    text = "\n".join(",".join(row) for row in [header, *rows])
    with _directory() as directory, taken_or_refused():
        _replayed(_file(directory, "trace.csv", _encoded(text, encoding)))


@given(st.lists(NUMBERS, max_size=4), st.lists(NUMBERS, max_size=4), st.lists(TOML_TEXTS | st.just("off"), max_size=4))
def test_a_recording_of_any_numbers(starts: list[Any], lengths: list[Any], kinds: list[str]) -> None:
    rows = zip(starts, lengths, kinds, strict=False)
    text = "\n".join(["start_s,duration_ms,kind", *(f'{start},{length},"{kind}"' for start, length, kind in rows)])
    with _directory() as directory, taken_or_refused():
        _replayed(_file(directory, "trace.csv", text.encode()))


def _replayed(file: Path) -> None:
    for part in ("", "#", "#7", "#a\0b"):
        with taken_or_refused():
            windows = recordings.offtimes(f"{file}{part}")
            assert windows and all(0 <= start < 2**63 and 0 < length < 2**63 for start, length in windows)


TYPED = st.lists(st.floats() | st.none(), min_size=1, max_size=3) | st.lists(
    TOML_TEXTS | st.none(), min_size=1, max_size=3
)


@given(st.dictionaries(COLUMNS, TYPED | st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=3), max_size=5))
def test_a_recording_as_parquet(columns: dict[str, list[Any]]) -> None:
    height = min((len(values) for values in columns.values()), default=0)
    with _directory() as directory, taken_or_refused():
        file = Path(directory) / "recording.parquet"
        pl.DataFrame({name: values[:height] for name, values in columns.items()}, strict=False).write_parquet(file)
        _replayed(file)


@given(ARGUMENTS)
def test_a_recordings_name(text: str) -> None:
    with taken_or_refused():
        recordings.offtimes(text)


@given(TEXTS.map(lambda text: "a" + text) | ARGUMENTS)
def test_a_congestion_control(text: str) -> None:
    with taken_or_refused():
        cc_names.check_offered(text, ["cubic", "bbr", "brb_bbq", text], "virtual-6.12")


@given(TEXTS)
def test_a_kernels_name(text: str) -> None:
    for name in (text, f"virtual-{text}", f"debian-{text}", f"{text}:{text}"):
        with taken_or_refused():
            virtual_kernels.find(name)
        with taken_or_refused():
            vm_kernels.find(name)


JSON_KEYS = """schema brobust name release hz sha256 congestion_controls source our_files key objects paper scale
backend figures asked claim verdict n measured note cpu"""
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(JSON_KEYS.split()) | st.text(max_size=4), inner, max_size=12)
    ),
    max_leaves=20,
)
JSON_FILES = JSON.map(lambda told: json.dumps(told).encode()) | st.binary(max_size=40)


@given(JSON_FILES)
def test_a_kernel_json(content: bytes) -> None:
    with _directory() as directory:
        _file(directory, "kernel.json", content)
        _file(directory, "linux", b"")
        kernel = virtual_kernels.VirtualKernel.read(Path(directory))
        assert kernel is None or kernel.path.is_file()


# What may stand in a dataset's place: by name, its content; None: a directory, "": nothing.
DATASET_FILES = st.dictionaries(
    st.sampled_from(
        [
            "dataset.json",
            "scenario.toml",
            f"runs/{parts.name(1, 1)}",
            f"throughput/{parts.name(1, 1)}",
            f"runs/{parts.name(2, 2)}",
        ]
    ),
    JSON_FILES | TOML_FILES | st.none() | st.just(""),
    max_size=3,
)


@contextmanager
def _dataset(replaced: dict[str, Any], runs: pl.DataFrame | None = None) -> Iterator[Path]:
    with _directory() as scratch, warnings.catch_warnings():
        warnings.simplefilter("ignore", UnreadableFile)
        directory = Path(scratch) / "data"
        dataset = Dataset.create(directory, Grid.from_flags({}), {})
        rates = [{"run": "a-0", "flow": 0, "time_s": 0.1, "throughput_mbps": 1.0}]
        dataset.append("a-0", Measured([{"run": "a-0", "flow": 0, "cc": "bbr", "outcome": "ok"}], throughput=rates))
        if runs is not None:
            runs.with_columns(pl.lit(2, pl.Int64).alias(parts.PART)).write_parquet(
                directory / "runs" / parts.name(2, 2)
            )
        for name, content in replaced.items():
            (directory / name).unlink(missing_ok=True)
            if content is None:
                (directory / name).mkdir()
            elif content != "":
                (directory / name).write_bytes(content)
        yield directory


def _read(directory: Path) -> None:
    with taken_or_refused():
        dataset = Dataset.open(directory)
        with taken_or_refused():
            _use(dataset.grid())
        assert isinstance(dataset.finished(), set)
        assert dataset.runs().columns == [*RUNS]
        for read in (dataset.throughput, dataset.samples, dataset.offtimes, dataset.packets):
            read()
        with taken_or_refused(), Path(os.devnull).open("w") as nowhere:
            Console(file=nowhere).print(table.render(dataset.runs(), str(directory), dataset.grid))
        with taken_or_refused():
            compare.compare(dataset, dataset)


@given(DATASET_FILES)
def test_a_strangers_dataset(replaced: dict[str, Any]) -> None:
    with _dataset(replaced) as directory:
        _read(directory)


@given(st.data())
def test_a_dataset_with_any_figures(data: st.DataObject) -> None:
    """Of the right types, or without a column."""
    of_type = {
        pl.String: st.none() | TOML_TEXTS, pl.Float64: st.none() | st.floats(), pl.Boolean: st.none() | st.booleans(),
        pl.Int64: st.none() | st.integers(-(2**63), 2**63 - 1),
    }  # fmt: skip
    names = data.draw(st.lists(st.sampled_from([*RUNS]), max_size=12, unique=True))
    ok: dict[str, Any] = {"run": "c-0", "outcome": "ok", "cc": "bbr", "throughput_mbps": 1.0, "share": 1.0}
    values = {name: ok.get(name) for name in RUNS}
    values |= {name: data.draw(of_type.get(RUNS[name].dtype, st.none()), label=name) for name in names}
    schema = {name: column.dtype for name, column in RUNS.items()}
    runs = pl.DataFrame([values], schema=schema, orient="row", strict=False)
    lacking = data.draw(st.lists(st.sampled_from([*RUNS]), max_size=1))
    with _dataset({}, runs.drop(lacking)) as directory:
        _read(directory)


@given(st.sampled_from(sorted(TABLES)), st.integers(0, 400), st.binary(min_size=1, max_size=8))
def test_a_dataset_with_a_damaged_file(name: str, at: int, new: bytes) -> None:
    with _dataset({}) as directory:
        file = directory / ("throughput" if name == "throughput" else "runs") / parts.name(1, 1)
        content = file.read_bytes()
        at = at * len(content) // 400
        file.write_bytes(content[:at] + new + content[at + len(new) :])
        _read(directory)


@given(JSON_FILES, st.lists(JSON, max_size=2))
def test_a_strangers_reproduction(about: bytes, claims: list[Any]) -> None:
    with _dataset({}) as data, taken_or_refused():
        directory = data.parent
        _file(str(directory), "reproduction.json", about)
        _file(str(directory), "claims.jsonl", "".join(json.dumps(claim) + "\n" for claim in claims).encode())
        html.write([directory], directory / "report.html")


OPTIONS = """--cc --share --bandwidth --rtt --buffer --loss --aqm --timeslice --driver --phase --duration --repeat
--seed --kernel --samples --packets --replay --jobs --flows --pattern --resume --json --scale --figure --x --html
--tolerance --all --pid --threads --for --dry-run --qemu --nice --competitors -h --version --help -- - --no-such"""


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An empty directory that the commands are called in; nothing is measured."""
    patch = pytest.MonkeyPatch()
    directory = tmp_path_factory.mktemp("elsewhere")
    patch.chdir(directory)
    patch.setattr(measuring, "measure", lambda *_, **__: None)
    patch.setattr(measuring, "show", lambda *_: None)
    patch.setattr(measuring, "require_ok", lambda *_: None)
    patch.setattr(Dataset, "create", lambda *_: None)
    patch.setattr(Dataset, "create_beside", lambda *_, **__: None)
    yield directory
    patch.undo()


@given(
    st.sampled_from(["run", "plot", "compare", "report", "sweep --dry-run", "reproduce --dry-run", "kernel list"]),
    st.lists(st.sampled_from(OPTIONS.split()) | ARGUMENTS, max_size=6),
)
def test_a_command_line(elsewhere: Path, command: str, arguments: list[str]) -> None:
    _ends_well(lambda: cli.main([*command.split(), *arguments]))


def _ends_well(call: Callable[[], None]) -> None:
    """Neither a traceback nor the status that a mistake of ours has."""
    with pytest.raises(SystemExit) as ended:
        call()
    assert ended.value.code in (0, 1, 2), ended.value.code
