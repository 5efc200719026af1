"""Build the documentation as a site that needs no network: python/brobust/site, which `brobust docs` opens.

    .venv/bin/python scripts/site/build.py [DIRECTORY]      # or `make docs`

The pages are those that README.md lists below "Documentation", in its order and groups, and the reference that
reference.py generates. They are written for a git host, where a link to a file of the repository leads to that
file. The site has only the pages and their pictures, so a link to another file becomes the file's name.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import tomli_w

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BUILD = ROOT / "build/site"
SITE = ROOT / "python/brobust/site"
# A page in a line of the README, of which there may be several; figures and headings are none.
LISTED = r"\[([^\]]*)\]\(([^)#]*\.md)\)"
# What lets a browser search in files, for which zensical's pages name a script that is elsewhere.
SCRIPT, ELSEWHERE = "search_in_files.js", "https://unpkg.com/iframe-worker/shim"
REFERENCE = {"commands.md": "Every command", "python.md": "Python"}
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
# What a page's Markdown has beyond the original: tables, blocks in ``` fences, and GitHub's anchors of headings.
EXTENSIONS = {
    "tables": {},
    "toc": {"permalink": True},
    "pymdownx.superfences": {},
    "pymdownx.highlight": {"guess_lang": False},
}

Group = tuple[str, list[tuple[str, Path]]]
"""A heading of the navigation, and title and file of each of its pages."""


def groups() -> Iterator[Group]:
    """Yield the groups of pages that the README lists."""
    listed = (ROOT / "README.md").read_text().partition("\n## Documentation\n")[2].partition("\n## ")[0]
    for section in listed.split("\n### ")[1:]:
        heading, _, text = section.partition("\n")
        lines = [line for line in text.splitlines() if line.startswith("- ")]
        yield heading, [(title, ROOT / target) for line in lines for title, target in re.findall(LISTED, line)]


def name_in_site(page: Path) -> str:
    """Return the file name of a page of the repository in the site, where all are in one directory."""
    if page.name == "README.md":
        return "index.md" if page.parent == ROOT else f"{page.parent.name}.md"
    return page.name.lower()


def in_site(page: Path, text: str, pages: set[Path]) -> str:
    """Return the text of a page with the links that the site needs. Pictures come along."""

    def replaced(link: re.Match[str]) -> str:
        picture, shown, target = link.groups()
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        if re.match(r"[a-z]+:", target):
            return link[0]
        if picture or file.suffix == ".png":
            shutil.copy(file, BUILD / "docs" / file.name)
            return f"{picture}[{shown}]({file.name})"
        if file in pages:
            return f"[{shown}]({name_in_site(file)}{'#' * bool(anchor)}{anchor})"
        path = file.relative_to(ROOT).as_posix()
        return f"`{path}`" if shown.strip("`") in path else f"{shown} (`{path}`)"

    parts = re.split(r"(^```.*?^```$)", text, flags=re.DOTALL | re.MULTILINE)
    return "".join(part if part.startswith("```") else LINK.sub(replaced, part) for part in parts)


def write_sources() -> None:
    """Write the pages and zensical's configuration below build/site."""
    shutil.rmtree(BUILD, ignore_errors=True)
    (BUILD / "docs").mkdir(parents=True)
    listed = list(groups())
    pages = {ROOT / "README.md", *(page for _, entries in listed for _, page in entries)}
    for page in pages:
        (BUILD / "docs" / name_in_site(page)).write_text(in_site(page, page.read_text(), pages))
    subprocess.run([sys.executable, HERE / "reference.py", BUILD / "docs"], check=True)
    shutil.copy(HERE / "layout.css", BUILD / "docs")
    navigation = [
        {"brobust": "index.md"},
        *({heading: [{title: name_in_site(page)} for title, page in entries]} for heading, entries in listed),
        {"Reference": [{title: name} for name, title in REFERENCE.items()]},
    ]
    configuration = {
        "project": {
            "site_name": "brobust",
            "site_description": "TCP BBR when the sender's CPU is taken away: measured, explained, detected, repaired",
            "use_directory_urls": False,  # so that a browser can read the files where they are
            "nav": navigation,
            "extra_css": ["layout.css"],
            # No fonts from elsewhere.
            "theme": {"font": False, "features": ["content.code.copy", "navigation.sections", "navigation.footer"]},
            "plugins": {"search": {}, "offline": {}},
            "markdown_extensions": EXTENSIONS,
        }
    }
    (BUILD / "zensical.toml").write_text(tomli_w.dumps(configuration))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, nargs="?", default=SITE)
    site = parser.parse_args().directory.resolve()
    write_sources()
    build = [sys.executable, "-m", "zensical", "build", "--strict", "--clean", "--config-file", BUILD / "zensical.toml"]
    if subprocess.run(build, cwd=BUILD, env={**os.environ, "NO_COLOR": "1"}).returncode != 0:
        sys.exit("docs: the site has problems, see above")
    shutil.copy(HERE / SCRIPT, BUILD / "site")
    for page in (BUILD / "site").glob("*.html"):
        page.write_text(page.read_text().replace(ELSEWHERE, SCRIPT))
    shutil.rmtree(site, ignore_errors=True)
    shutil.move(BUILD / "site", site)
    print(f"docs: {os.path.relpath(site)}/index.html")


if __name__ == "__main__":
    main()
