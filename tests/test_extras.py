"""Without the extra `study`, what needs it is refused before anything is measured; the terminal's figure needs none."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from brobust import extras
from brobust.dataset import Dataset
from brobust.report import reproduced
from brobust.scenario import Grid
from brobust.study import STUDIES
from conftest import refused

ROOT = Path(__file__).parent.parent


def test_the_extra_is_what_pyproject_says() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert [requirement.split(">=")[0] for requirement in project["optional-dependencies"]["study"]] == [*extras.STUDY]


@pytest.mark.parametrize(
    "command",
    [
        "reproduce mobiles", "report x", "validate", "plot x --out y",
        f"sweep {next(STUDIES.glob('mobiles/*.toml'))} --cluster tcp://127.0.0.1:1",
    ],
)  # fmt: skip
def test_what_needs_the_extra_is_refused_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Dataset.create(Path("x"), Grid.from_flags({"kernel": "virtual-6.12"}), {})
    monkeypatch.setattr(reproduced, "Reproduced", lambda directory: directory)
    monkeypatch.setattr(extras, "missing", lambda: ["matplotlib"])
    said = refused(capsys, *command.split())
    assert "the extra `study`" in said and "install" in said and "'brobust[study]'" in said


def test_whether_a_study_s_figures_can_be_drawn_is_known_without_the_extra() -> None:
    program = f"import sys; sys.modules.update(dict.fromkeys({extras.STUDY})); from brobust.report.study import check"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_figure_in_the_terminal_needs_no_extra() -> None:
    program = f"""
import sys
from brobust import extras
from brobust.dataset import Dataset
from brobust.report import reproduced
from brobust.scenario import Grid
sys.modules.update(dict.fromkeys(extras.STUDY))  # as if they were not installed
sys.path.insert(0, {str(Path(__file__).parent)!r})
from types import SimpleNamespace as Dataset
from pathlib import Path
from test_report import rows
from brobust.cli.plot import draw
draw(Dataset(runs=rows, directory=Path("there")), "share", Path("there"))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    *figure, last = done.stdout.splitlines()
    assert "CPU" in "".join(figure) and "brobust plot there" in last and "'brobust[study]'" in last
