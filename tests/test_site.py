"""The site of the documentation (scripts/site): every page, no network, and a search that works in files."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from brobust.cli import docs
from browser import CHROMIUM, Browser
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


def test_every_page_and_every_claim_is_found_in_the_site(
    site: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(docs, "SITE", site)
    pages = [page.relative_to(ROOT / "docs").with_suffix("") for page in (ROOT / "docs").rglob("*.md")]
    asked = {str(page): f"{page.name}.html" for page in pages}
    claims = {
        "R8": "reproduction.html#r8",
        "S8": "own.html#s8",
        "S1-VM": "own.html#s1-vm",
        "pacer-P1": "own.html#pacer-p1",
    }
    for page, found in {**asked, **claims, "index": "index.html"}.items():
        docs.docs(page)
        file, _, anchor = capsys.readouterr().out.strip().partition("#")
        assert f"{Path(file).relative_to(site)}{f'#{anchor}' if anchor else ''}" == found
        assert f'<a id="{anchor}"></a>' in Path(file).read_text() or not anchor


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


# The search is in a shadow root of its own.
SEARCH = '[...document.querySelectorAll("*")].map(one => one.shadowRoot).find(root => root?.querySelector("input"))'


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium; `scripts/setup.sh browser` installs it")
def test_the_search_finds_a_page_when_the_site_is_read_from_files(site: Path, tmp_path: Path) -> None:
    with Browser(tmp_path) as browser:
        browser.open((site / "index.html").as_uri())
        browser.wait(f"document.readyState == 'complete' && {SEARCH}")
        browser.run("document.querySelector('.md-search__button').click()")
        browser.run(f"const field = {SEARCH}.querySelector('input'); field.value = 'super-packets'; "
                    "field.dispatchEvent(new Event('input', {bubbles: true}))")  # fmt: skip
        browser.wait(f"[...{SEARCH}.querySelectorAll('a')].some(link => link.href.includes('scenario.html#path'))")


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


def test_the_command_names_a_page_or_says_which_there_are(brobust: Brobust) -> None:
    named = brobust("docs", "tutorial")
    assert named.returncode == 0 and Path(named.stdout.strip()).is_file()
    refused = brobust("docs", "wacht")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "'wacht' is no page" in refused.stderr and "watch" in refused.stderr
