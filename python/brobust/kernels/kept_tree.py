"""The tree of a build, kept, so that a kernel with a changed congestion control is built in seconds.

A later build of the same kernel starts from the kept tree if only files of `tree/` have changed, which hold cc/ too: it
copies those, and make compiles what depends on them. The executable is the same, byte for byte, as that of a complete
build. A tree whose build was interrupted is not used again: half an object may be left there.
"""

import hashlib
import json
import shutil
from contextlib import suppress
from pathlib import Path

from brobust import files
from brobust.kernels import our_files
from brobust.kernels.tree import copy_files

STATE = "kept.json"  # in the build's directory while its tree is whole


def key(decided: object, ours: Path) -> str:
    """Return a hash of everything but `tree/` that decides what is compiled: `decided`, the patches, the options."""
    others = {name: path for name, path in our_files.below(ours).items() if not name.startswith("tree/")}
    return hashlib.sha256(json.dumps([decided, our_files.hash_of(others)]).encode()).hexdigest()[:16]


def update(directory: Path, wanted: str, ours: Path) -> dict[str, Path] | None:
    """Copy our files into the kept tree of a build's directory and return the congestion controls that they add,
    as `bring_our_files` does; return None if the tree cannot be used for a build with this key."""
    mark, known = directory / STATE, None
    with suppress(OSError, ValueError, LookupError, TypeError, AttributeError):  # there is none, or another version's
        state = json.loads(mark.read_text())
        if state["key"] == wanted and set(state["files"]) <= set(our_files.below(ours / "tree")):
            known = {control: Path(source) for control, source in state["controls"].items()}
    files.remove_mark(mark)  # until the build has ended
    return None if known is None else known | copy_files(ours / "tree", directory / "linux")


def keep(directory: Path, wanted: str, ours: Path, controls: dict[str, Path], *, stays: bool) -> None:
    """Write down what the tree was built from, once nothing writes to it any more. `stays`: for later builds, which may
    come after a power cut."""
    state = {
        "key": wanted,
        "files": list(our_files.below(ours / "tree")),
        "controls": {control: str(source) for control, source in controls.items()},
    }
    if stays:
        files.sync(directory)
    files.write(directory / STATE, json.dumps(state))


def remove(directory: Path) -> None:
    """Remove a build's directory; whoever is killed meanwhile leaves no tree that looks whole."""
    files.remove_mark(directory / STATE)
    shutil.rmtree(directory, ignore_errors=True)
