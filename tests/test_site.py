"""The site of the documentation (scripts/site): every page, no network, and a search that works in files."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from conftest import Brobust

ROOT = Path(__file__).parent.parent

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("zensical") is None, reason="no zensical; `scripts/setup.sh docs` installs it"
)


@pytest.fixture(scope="module")
def build() -> ModuleType:
    specification = importlib.util.spec_from_file_location("build_site", ROOT / "scripts/site/build.py")
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("site") / "site"
    built = subprocess.run(
        [sys.executable, ROOT / "scripts/site/build.py", directory], capture_output=True, text=True, timeout=280
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return directory


def test_every_page_that_the_readme_lists_is_in_the_site(site: Path, build: ModuleType) -> None:
    listed = {build.name_in_site(page) for _, pages in build.groups() for _, page in pages}
    assert {f"{page.stem}.md" for page in site.glob("*.html")} == {*listed, *build.REFERENCE, "index.md", "404.md"}


def test_a_figure_to_which_a_page_only_links_is_in_the_site(site: Path) -> None:
    assert re.search(r'href="?media\.png', (site / "media.html").read_text()) and (site / "media.png").is_file()


def test_the_reference_has_the_commands_of_both_programs(site: Path) -> None:
    commands = (site / "commands.html").read_text()
    assert [
        name for name in ("brobust-run", "brobust-kernel-build", "brobust-cc-load") if f'id="{name}"' not in commands
    ] == []


def test_a_page_loads_nothing_from_elsewhere(site: Path) -> None:
    loads = r'<(?:script|link|img|iframe)[^>]*(?:src|href)="?(?:https?:)?//[^">]*'
    assert [found for page in site.glob("*.html") for found in re.findall(loads, page.read_text())] == []


@pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium; `scripts/setup.sh browser` installs it")
def test_the_search_finds_a_page_when_the_site_is_read_from_files(site: Path, tmp_path: Path) -> None:
    type_into_the_search = """<script>
        const roots = () => [...document.querySelectorAll("*")].map(element => element.shadowRoot);
        const inside = () => roots().find(root => root?.querySelector("input"));
        setTimeout(() => document.querySelector(".md-search__button").click(), 500);
        setTimeout(() => {
            inside().querySelector("input").value = "super-packets";
            inside().querySelector("input").dispatchEvent(new Event("input", {bubbles: true}));
        }, 2000);
        setTimeout(() => { document.title = [...inside().querySelectorAll("a")].map(a => a.href).join(" ") }, 6000);
    </script></body>"""
    page = site / "searching.html"
    page.write_text((site / "index.html").read_text().replace("</body>", type_into_the_search))
    shown = subprocess.run(
        ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=15000", "--dump-dom",
         f"--user-data-dir={tmp_path}/chromium", page.as_uri()], capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    page.unlink()
    found = re.search(r"<title>(.*?)</title>", shown.stdout)
    assert found is not None and "scenario.html#path" in found[1], shown.stderr


@pytest.mark.parametrize(
    ("link", "in_site"),
    [
        ("[watch](watch.md#causes)", "[watch](watch.md#causes)"),
        ("[all](../README.md)", "[all](index.md)"),
        ("[speed](../benchmarks/README.md)", "[speed](benchmarks.md)"),
        ("[cc/cc.h](../cc/cc.h)", "`cc/cc.h`"),
        ("[the contract](../cc/cc.h)", "the contract (`cc/cc.h`)"),
        ("[elsewhere](https://example.org/a.md)", "[elsewhere](https://example.org/a.md)"),
        ("```\n[watch](../cc/cc.h)\n```", "```\n[watch](../cc/cc.h)\n```"),
    ],
)
def test_a_link_leads_to_a_page_or_names_the_file(build: ModuleType, link: str, in_site: str) -> None:
    pages = {ROOT / "README.md", ROOT / "docs/watch.md", ROOT / "benchmarks/README.md"}
    assert build.in_site(ROOT / "docs/any.md", link, pages) == in_site


def test_the_command_names_a_page_or_says_which_there_are(
    brobust: Brobust,
) -> None:
    named = brobust("docs", "tutorial")
    assert named.returncode == 0 and Path(named.stdout.strip()).is_file()
    refused = brobust("docs", "wacht")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "'wacht' is no page" in refused.stderr and "watch" in refused.stderr
