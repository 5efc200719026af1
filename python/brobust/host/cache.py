"""The directory in which brobust keeps what it has fetched and built."""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from brobust import files
from brobust.errors import MissingSupport
from brobust.host.locks import refuse_foreign_to_root

AT_FDCWD, RENAME_EXCHANGE = -100, 2  # renameat2(2)


def cache_directory() -> Path:
    """Return the directory for kernels and guest images: $BROBUST_CACHE, else brobust's in the user's cache."""
    if named := os.environ.get("BROBUST_CACHE"):
        # What is built there runs in other directories. And what a file of settings says no shell has expanded.
        return Path(os.path.expanduser(named)).absolute()  # noqa: PTH111 # pathlib's raises where there is no home
    of_user = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not of_user.is_absolute():  # the XDG Base Directory Specification ignores such a one
        try:
            of_user = Path.home() / ".cache"
        except RuntimeError:  # a user of whom this system knows nothing, without HOME
            raise MissingSupport(
                "nobody knows where kernels are to be kept: this user has no home directory; set BROBUST_CACHE to a "
                "directory of its own"
            ) from None
    return of_user / "brobust"


def refuse_foreign_images() -> None:
    """As root, refuse a cache in which others could put what guests boot, or a link to what only root may read. Kernels
    are looked at where they are found."""
    for part in ("images", "kvm") if os.geteuid() == 0 else ():
        files.make_directory(cache_directory() / part)
        refuse_foreign_to_root(cache_directory() / part, cache_directory())


@contextmanager
def scratch_beside(place: Path) -> Iterator[Path]:
    """Yield a new directory for what is to be renamed to its place, so that what is half made never looks like it. When
    the block has ended, a file is on the disk there; a directory gets its place by `put_in_place`. Say so where there
    is no room."""
    files.make_directory(place.parent)
    with (
        files.writing_to(place.parent),
        files.temporary_directory(place.parent) as scratch,
        files.writing_to(place.parent),  # before the scratch directory is removed
    ):
        yield scratch
        if place.is_file():
            files.sync(place)


def put_in_place(whole: Path, place: Path) -> None:
    """Give a directory the name by which it is believed, once its content is on the disk. At any moment what had the
    name before has it, or this; what had it is then in this one's former place, or beside that, to be removed."""
    files.sync(whole)
    try:
        whole.rename(place)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        _exchange(whole, place)


def _exchange(whole: Path, place: Path) -> None:
    import ctypes  # as in files.py

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(AT_FDCWD, os.fsencode(whole), AT_FDCWD, os.fsencode(place), RENAME_EXCHANGE) != 0:
        # Some file systems (NFS) cannot exchange two names. Then nothing has the name for a moment.
        replaced = whole.with_name(f"{whole.name}.replaced")
        shutil.rmtree(replaced, ignore_errors=True)  # an earlier build's, where the directory around it stays
        place.rename(replaced)
        whole.rename(place)
