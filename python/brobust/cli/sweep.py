"""The commands `brobust sweep` and `brobust reproduce`: measure studies and decide their claims."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from brobust import extras, files
from brobust.cli import output
from brobust.cli.options import jobs_option, without_option
from brobust.errors import BadInput
from brobust.lazily import pl
from brobust.scenario.fields import FIELDS
from brobust.study import Scale, papers
from brobust.units import show_count

if TYPE_CHECKING:
    from rich.table import Table

    from brobust.analysis.claims import Verdict
    from brobust.analysis.metrics import Evidence
    from brobust.analysis.twins import Twin
    from brobust.dataset import Dataset
    from brobust.scenario import Grid, Scenario
    from brobust.study.model import Study

Backend = Annotated[
    str, typer.Option(metavar="NAME", help="Measure in virtual time (virtual), on VMs (vm) or on your hosts (lab).")
]
HowMuch = Annotated[
    Scale,
    typer.Option(
        help="How much of the study to measure: smoke is its smallest form. --dry-run says how long it takes."
    ),
]
Without = Annotated[list[str] | None, without_option()]
Jobs = Annotated[int | None, jobs_option()]
Kernel = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME", help="Use this kernel, such as virtual-6.1, instead of the study's own; may be repeated."
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="FIELD=VALUE",
        help="Measure all runs with this value of a scenario's field, such as nic.adaptive_rx=on; may be repeated.",
    ),
]
Cluster = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS", help="Measure on the workers of a dask.distributed cluster; ADDRESS is its scheduler."
    ),
]
Insecure = Annotated[bool, typer.Option("--insecure", help="With --cluster: connect without TLS, over any network.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say how many runs there are and how long they take.")]


GO_ON = "the same command"
"""How an interrupted sweep or reproduction goes on."""
OF_OPTIONS = ("backend", "kernel")
"""Fields for which these commands have options of their own."""


def sweep(
    study: Annotated[
        list[Path], typer.Argument(metavar="STUDY.toml", help="The files of one or several studies (docs/studies.md).")
    ],
    scale: HowMuch = Scale.QUICK,
    backend: Backend = "virtual",
    kernel: Kernel = None,
    settings: Set = None,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Dataset directory; an interrupted sweep in it is continued.")
    ] = Path("brobust-sweep"),
    without: Without = None,
    jobs: Jobs = None,
    cluster: Cluster = None,
    insecure: Insecure = False,
    dry_run: DryRun = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per run as it finishes.")] = False,
) -> None:
    """Measure all cells of a study's grids, repeated and shuffled. Runs that the dataset holds are not repeated.

    Examples:
      brobust sweep mine.toml --dry-run                  # how long will it take?
      brobust sweep mine.toml --scale smoke --out mine
      brobust plot mine
    """
    from brobust.cli.measuring import require_ok
    from brobust.study import model

    grid = model.grid(_asked_for([model.load(file) for file in study], kernel, settings), scale, backend)
    _check_written(grid, out, jobs, cluster, insecure, without or [])
    dataset = _measure(grid, out, jobs, cluster, dry_run=dry_run, as_json=as_json, without=without or [])
    if dataset is not None:
        require_ok(grid, dataset, GO_ON)


def reproduce(
    paper: Annotated[
        str,
        typer.Argument(
            metavar="PAPER|STUDY.toml",
            help=f"The paper: {', '.join(papers()[:-1])} or {papers()[-1]}; or the file of your own study, or a "
            "directory of such files.",
        ),
    ],
    figure: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Reproduce only this figure, such as 4; may be repeated.")
    ] = None,
    scale: HowMuch = Scale.QUICK,
    backend: Backend = "virtual",
    kernel: Kernel = None,
    settings: Set = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Directory for data, figures and claims; only runs missing in it are measured. "
            "[default: PAPER-BACKEND-SCALE]",
        ),
    ] = None,
    jobs: Jobs = None,
    cluster: Cluster = None,
    insecure: Insecure = False,
    dry_run: DryRun = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per claim as it is decided.")] = False,
) -> None:
    """Measure a paper's figures again, or a study of your own, draw them, decide the claims, and write an HTML report.

    The exit status is 1 if a claim differs or no run is ok.

    Examples:
      brobust reproduce 2brobust --scale smoke           # about a minute
      brobust reproduce 2brobust --figure 4 --dry-run    # how long will it take?
      brobust reproduce mine.toml
    """
    from brobust.report import study as drawing
    from brobust.scenario import Grid
    from brobust.study import model

    studies = _asked_for(model.of_paper(paper, figure or []), kernel, settings)
    # A claim may be of another figure than those that were asked for.
    every = _asked_for(model.of_paper(paper), kernel, settings)
    claims = {claim.id: claim for study in every for claim in study.claims}
    directory = out or Path(f"{studies[0].paper}-{backend}-{scale}")
    grids = model.grids(studies, scale, backend)
    grid = Grid.together([of_it for _, of_it in grids])
    _check_written(grid, directory / "data", jobs, cluster, insecure)
    if figure and not dry_run:
        _check_replaced(directory, figure)
    notes = [note for study, of_it in grids for note in drawing.check(study, of_it.as_written)]
    if not dry_run:
        extras.require("brobust reproduce")
    from brobust.analysis import twins
    from brobust.analysis.claims import DIFFERS, decide
    from brobust.analysis.metrics import Evidence, Tables
    from brobust.cli.measuring import MEASURED, kept, require, require_ok
    from brobust.report.console import Console

    errors = Console(stderr=True)
    for note in notes:
        errors.print(note, soft_wrap=True, highlight=False)
    dataset = _measure(grid, directory / "data", jobs, cluster, dry_run=dry_run, as_json=False)
    if dataset is None:
        return
    require(grid, dataset, MEASURED)
    verdicts: list[Verdict] = []
    with kept(grid, dataset, GO_ON):
        tables = Tables(dataset)
        measured = [(study, Evidence(tables, grid.ids_of(of_it))) for study, of_it in grids]
        twinned = [twin for study, evidence in measured for twin in twins.decided(study.twins, claims, evidence)]
        for study, evidence in measured:
            for file in drawing.draw(study, evidence, directory / "figures", twinned):
                if not as_json:
                    with output.if_anybody_reads():
                        print(file)
            for claim in study.claims:
                verdict = decide(claim, evidence)
                verdicts.append(replace(verdict, decided_by=twins.decided_by(verdict, twinned)))
                if as_json:
                    with output.if_anybody_reads():
                        print(json.dumps(verdicts[-1].__dict__), flush=True)
        about = {
            "paper": studies[0].paper, "of": paper, "scale": scale, "backend": backend,
            "figures": [study.figure for study, _ in measured],
            # As they were measured: reports need no file that may have changed since.
            "studies": [study.model_dump(mode="json", exclude_unset=True) for study, _ in measured],
            "asked": [*_repeated("--figure", figure), *_repeated("--kernel", kernel), *_repeated("--set", settings)],
        }  # fmt: skip
        _write(directory, about, measured, verdicts, twinned)
    if not as_json:
        with output.if_anybody_reads():
            print(directory / "report.html")
            for table in _tables(verdicts, twinned):
                Console().print(table)
    require_ok(grid, dataset, GO_ON)
    if any(verdict.verdict == DIFFERS for verdict in verdicts):
        raise typer.Exit(1)


def _write(
    directory: Path, about: dict[str, Any], measured: Sequence[tuple[Study, Evidence]], verdicts: Sequence[Verdict],
    twinned: Sequence[Twin],
) -> None:  # fmt: skip
    """Write what was found into the directory, for people and for programs."""
    from brobust.analysis import cells
    from brobust.report import html, sheets

    every_cell = [
        cells.table(evidence.runs).insert_column(0, pl.lit(study.figure).alias("figure"))
        for study, evidence in measured
        if not evidence.runs.is_empty()  # perhaps all of its runs failed
    ]
    finished = directory / "reproduction.json"
    files.remove_mark(finished)  # who is killed meanwhile leaves no verdicts of now beside what is said of before
    files.write(directory / "claims.jsonl", "".join(json.dumps(v.__dict__) + "\n" for v in verdicts))
    files.write(directory / "twins.jsonl", "".join(json.dumps(asdict(twin)) + "\n" for twin in twinned))
    files.write(directory / "verdicts.csv", sheets.verdicts(verdicts))
    files.write(directory / "twins.csv", sheets.twins(twinned))
    files.write(directory / "cells.csv", pl.concat(every_cell).write_csv())
    files.write(directory / "metrics.csv", sheets.metrics(measured).write_csv())
    files.write(finished, json.dumps(about))
    html.write([directory], directory / "report.html")


def _repeated(option: str, values: Sequence[str] | None) -> list[str]:
    return [word for value in values or () for word in (option, value)]


def _check_written(
    grid: Grid, directory: Path, jobs: int | None, cluster: str | None, insecure: bool, without: Sequence[str] = ()
) -> None:
    """Refuse what can be refused by reading what the user has written; then a cluster without the extra that connects
    to it, and one without TLS outside of private networks."""
    from brobust import backends
    from brobust.dataset import Dataset
    from brobust.series import runner

    if insecure and cluster is None:
        raise BadInput("--insecure says how to connect to --cluster; give --cluster, too")
    runner.check_jobs(jobs, grid.as_written, cluster)
    backends.check_written(grid.as_written)
    if (directory / "dataset.json").exists():
        there = Dataset.open(directory)
        there.check_without(without)
        before = there.grid().as_written
        # Where no kernel is named, it depends on the machine.
        _check_same(
            directory, *([one.model_copy(update={"kernel": ""}) for one in of] for of in (before, grid.as_written))
        )
    else:
        Dataset.check_new(directory, without)
    if cluster is not None:
        extras.require("--cluster")
    if cluster is not None and not insecure:
        from brobust.series.cluster import refuse_exposed

        refuse_exposed(cluster)


def _check_replaced(directory: Path, figures: Sequence[str]) -> None:
    """Refuse a directory with a reproduction of more figures than these: its claims and its report would be those of
    these alone."""
    try:
        about = files.read_json(directory / "reproduction.json")
    except BadInput:  # nothing is finished there
        return
    there = about.get("figures") if isinstance(about, dict) else None
    if isinstance(there, list) and (others := [str(one) for one in there if one not in figures]):
        raise BadInput(
            f"--figure: {directory} holds the claims and the report of figure {', '.join(others)}, too, which would be "
            "replaced; ask for these, too, or leave --figure out: what is measured is only drawn; or give another --out"
        )


def _asked_for(studies: Sequence[Study], kernels: Sequence[str] | None, settings: Sequence[str] | None) -> list[Study]:
    """Return the studies with the kernels and fields of the command instead of their own."""
    found = [study.on_kernels(kernels) for study in studies] if kernels else list(studies)
    for text in settings or ():
        fields = _field(text)
        found = [study.with_fields(fields) for study in found]
    return found


def _field(text: str) -> dict[str, Any]:
    """Return TABLE.FIELD=VALUE as tables. A value is read as in a file, and anything else is a string."""
    name, equals, value = text.partition("=")
    if not equals or name not in FIELDS or name.startswith("flows.") or name in OF_OPTIONS:
        raise BadInput(
            f"--set: {text!r} is not FIELD=VALUE with a field of a scenario outside of [[flows]]; "
            f"for {' and '.join(OF_OPTIONS)} there are options"
        )
    try:
        given = files.toml(f"value = {value}")
    except ValueError:
        given = {"value": value}
    if len(given) > 1:
        raise BadInput(f"--set: {text!r} goes on after the value; write another --set for another field")
    fields: dict[str, Any] = {name.rpartition(".")[2]: given["value"]}
    return {name.partition(".")[0]: fields} if "." in name else fields


def _measure(
    grid: Grid,
    directory: Path,
    jobs: int | None,
    cluster: str | None,
    *,
    dry_run: bool,
    as_json: bool,
    without: Sequence[str] = (),
) -> Dataset | None:
    """Measure the runs of a grid that the dataset lacks. Return the dataset; None after a dry run."""
    from brobust import backends
    from brobust.cli.measuring import check_builds, measure
    from brobust.dataset import Dataset
    from brobust.report.console import Console
    from brobust.series import expected_time, runner

    backends.check(grid, jobs)
    if cluster is not None and not dry_run:
        runner.check_cluster(cluster)
    there = (directory / "dataset.json").exists()
    dataset = Dataset.open(directory) if there else None
    left = grid.runs()
    if dataset is not None:
        before = dataset.grid()
        _check_same(directory, before.scenarios, grid.scenarios)
        left = runner.remaining(grid, dataset)
        check_builds(grid, dataset, is_complete=not left)  # before the dataset grows
        if not dry_run and before.with_all_of(grid) is not before:
            dataset.grow(grid.with_all_of(before))
    cells = show_count(len(grid.scenarios), "cell")
    if left:
        seconds = expected_time.expected_seconds(left, dataset, jobs)
        about = f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} minutes"
        text = f"{show_count(len(left), 'run')} of {cells}, about {about} on this machine"
    else:
        text = f"nothing is left to measure: {directory} holds all runs of {cells}"
    Console(stderr=not dry_run).print(text, soft_wrap=True, highlight=False)
    if dry_run:
        return None
    if dataset is None:
        dataset = Dataset.create(directory, grid, runner.host(), without=without)
    measure(grid, dataset, as_json, jobs, cluster, go_on=GO_ON)
    return dataset


def _check_same(directory: Path, before: Sequence[Scenario], asked: Sequence[Scenario]) -> None:
    """Refuse a dataset unless what it was begun with contains what is asked for, or the other way round."""
    begun, requested = set(before), set(asked)
    if not (begun <= requested or requested <= begun):
        raise BadInput(f"{directory} holds other studies or another scale; give another --out, or remove the directory")


def _tables(verdicts: Sequence[Verdict], twinned: Sequence[Twin]) -> Iterator[Table]:
    from rich.table import Table

    from brobust.report.reproduced import twin_tables

    if verdicts:
        table = Table("claim", "verdict", "decided by", "runs of a cell", "measured", box=None, pad_edge=False)
        for one in verdicts:
            table.add_row(one.claim, one.in_words, one.decided_by, one.runs_in_words, one.measured or one.note)
        yield table
    for variable, values, by_claim in twin_tables(twinned):
        table = Table("claim", *values, box=None, pad_edge=False, title=f"By {variable}", title_justify="left")
        for claim, found in by_claim.items():
            table.add_row(claim, *(found[value].outcome if value in found else "" for value in values))
        yield table
