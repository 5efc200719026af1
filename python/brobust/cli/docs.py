"""`brobust docs`: open the documentation of this installation, or say where it is."""

import re
from pathlib import Path

import typer

import brobust
from brobust.cli import output
from brobust.errors import BadInput, MissingSupport, meant

PACKAGE = Path(brobust.__file__).parent
# `make docs` builds the site, and a wheel brings it. A checkout has its Markdown anyway.
SITE = PACKAGE / "site"
CHECKOUT = PACKAGE.parent.parent / "docs"


def docs(
    page: str = typer.Argument(
        "index",
        metavar="PAGE",
        help="A page, for example tutorial, watch or 2brobust; or a claim, for example R8: does it hold?",
    ),
) -> None:
    """Open this documentation in a browser, or say where it is.

    The browser opens only on a desktop's terminal. Without one, or in a pipe, the command prints the page's file.
    """
    file, anchor = _place(page)
    print(f"{file}{anchor}")
    output.open_page(f"{file.as_uri()}{anchor}")


def _place(page: str) -> tuple[Path, str]:
    """Return the file of a page; of a claim that with its row, and its anchor there (scripts/evidence_tables.py)."""
    directory, ending = (SITE, ".html") if SITE.is_dir() else (CHECKOUT, ".md")
    places = [file for depth in ("*", "reproduction/*") for file in sorted(directory.glob(f"{depth}{ending}"))]
    # The site has all in one directory (scripts/site/build.py).
    pages = {file.stem: file for file in places if file.stem != "404"}
    if directory == CHECKOUT and pages:
        pages["index"] = CHECKOUT.parent / "README.md"
    if not pages:
        raise MissingSupport("this installation has no documentation; in a checkout `make docs` builds it")
    name, claim = page.removeprefix("reproduction/"), page.lower()
    if "reproduction" in pages and name not in pages and re.fullmatch(r"([a-z]+-)?[a-z]\d+(-[a-z]+)?", claim):
        for of_claims in ("reproduction", "own"):
            if f'<a id="{claim}">' in pages[of_claims].read_text():
                return pages[of_claims], f"#{claim}"
        raise BadInput(f"{page!r} is no claim of a study; `brobust docs reproduction` leads to all of them")
    if name not in pages:
        near = meant(name, pages)
        known = f"did you mean {near}?" if near else f"the pages are {', '.join(sorted(pages))}"
        raise BadInput(f"{page!r} is no page of the documentation; {known}")
    return pages[name], ""
