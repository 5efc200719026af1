"""Find our own files that something is built from on a user's machine: kernels (cc/, kernel/virtual, kernel/real-time,
kernel/debug and kernel/patches) and QUIC programs (examples/quic); and hash them."""

import hashlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from brobust.errors import MissingSupport

_REPOSITORY = Path(__file__).parents[3]
_IN_WHEEL = Path(__file__).parents[1] / "sources"  # crates/python/build.rs and pyproject.toml put them there


def directory(name: str) -> Path:
    """Return a directory of the repository: in a checkout the directory itself, elsewhere the wheel's copy."""
    root = _REPOSITORY if (_REPOSITORY / "cc/cc.h").is_file() else _IN_WHEEL
    return root / name


CC = directory("cc")
VIRTUAL = directory("kernel/virtual")
PATCHES = directory("kernel/patches")

# The place of cc/ in a virtual kernel's tree, and the parts of cc/ from which no kernel is built.
CC_IN_TREE = "tree/arch/um/brobust/cc"
NOT_IN_KERNELS = ("hosts/bpf/", "hosts/program/")

# The series for kernel trees that virtual kernels of all kinds but one have as well; it is applied first, to the tree
# as it was.
KEPT = "0000-kept-"
WITHOUT_KEPT = "stock"


def of_virtual_kernels(kind: str | None = None) -> dict[str, Path]:
    """Return every file of ours that a virtual kernel is built from, by its path in kernel/virtual. Files of cc/ get
    the paths that they have in the kernel's tree. `kind`: with those of kernel/real-time or kernel/debug, or without
    the series kept."""
    if not (VIRTUAL / "config").is_file():
        raise MissingSupport(f"{VIRTUAL / 'config'} is missing: brobust's installation is incomplete; install it again")
    files = {"config": VIRTUAL / "config"}
    for part in ("patches", "tree"):
        files |= {f"{part}/{name}": path for name, path in below(VIRTUAL / part).items()}
    if kind != WITHOUT_KEPT:
        files |= {f"patches/{KEPT}{name}": path for name, path in series("kept").items() if _is_for_the_kernel(path)}
    files |= {f"{CC_IN_TREE}/{name}": path for name, path in below(CC).items() if not name.startswith(NOT_IN_KERNELS)}
    if kind:
        more = below(directory(f"kernel/{kind}"))
        files |= {f"{kind}-config" if name == "config" else name: path for name, path in more.items()}
    return files


def series(name: str) -> dict[str, Path]:
    """Return the patches of a series in kernel/patches, by their names, in the order in which they are applied."""
    return {patch: path for patch, path in below(PATCHES / name).items() if path.suffix == ".patch"}


def _is_for_the_kernel(patch: Path) -> bool:
    """Return whether a patch changes more than documentation and tests, which virtual kernels are built without."""
    changed = [line for line in patch.read_text().splitlines() if line.startswith("+++ b/")]
    return not all(line.startswith(("+++ b/Documentation/", "+++ b/tools/")) for line in changed)


def below(root: Path) -> dict[str, Path]:
    """Return the files below a directory, sorted by their relative paths, without those that editors and patch(1) leave
    behind."""
    above = len(str(root)) + 1
    found = {  # joined as texts: paths would take most of the time of a run that finds its kernel in a loop
        f"{directory}/{name}"[above:]: Path(f"{directory}/{name}")
        for directory, _, names in os.walk(root)
        for name in names
        if not name.startswith(".") and not name.endswith(("~", ".orig", ".rej"))
    }
    return dict(sorted(found.items()))


def hash_of(files: Mapping[str, Path]) -> str:
    """Return a hash of the files' names, contents and permission to execute; dates do not matter."""
    digest = hashlib.sha256()
    for name, path in sorted(files.items()):
        digest.update(f"{name}\0{path.stat().st_mode & 0o111 != 0}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def copy(files: Mapping[str, Path], to: Path) -> Path:
    """Copy the files into a directory, each to the path under which it is listed, and return the directory."""
    for name, path in files.items():
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, to / name)
    return to
