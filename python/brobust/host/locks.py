"""Lock files, so that one process at a time does something, and directories in which nobody else can write."""

import fcntl
import math
import os
import stat
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from brobust.errors import MissingSupport, reason
from brobust.files import why_not_written, writing_to

POLL_SECONDS = 0.01


def private_directory(path: Path, mode: int = 0o755) -> Path:
    """Return the directory, and make it first if it is missing. Refuse it if `refuse_foreign` does."""
    try:
        path.mkdir(parents=True, exist_ok=True, mode=mode)
    except OSError as error:  # a link or a file with this name is refused below, with a message that says so
        if (full := why_not_written(error)) is not None:
            raise full from None
        if not os.path.lexists(path):
            raise MissingSupport(f"{path} cannot be created ({reason(error)}); run this as root") from None
    refuse_foreign(path)
    return path


def refuse_foreign(path: Path, trusted: Collection[int] = ()) -> None:
    """Refuse a directory in which another user than the trusted ones could put files or links: root acts on what it
    reads there."""
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise MissingSupport(f"{path} is not a directory; remove it")
    if found.st_uid not in (0, os.geteuid(), *trusted):
        raise MissingSupport(f"{path} belongs to user {found.st_uid}, who could put anything there; remove it")
    if found.st_mode & 0o022:
        raise MissingSupport(f"{path} may be written by others than its owner; run `chmod go-w {path}`, or remove it")


def refuse_foreign_to_root(place: Path, within: Path, *, with_way: bool = True) -> None:
    """As root, refuse a directory whose content is about to be executed if it, or one above it up to `within`, fails
    `refuse_foreign`. `with_way`: also if another user could put another directory in the place of `within`. The owner
    of / may have made it, who could exchange all there is: in a user namespace what the host's root has installed."""
    if os.geteuid() == 0:
        if with_way:
            _refuse_exchangeable(within)
        place, within, trusted = place.resolve(), within.resolve(), {Path("/").stat().st_uid}
        for directory in (place, *(above for above in place.parents if above.is_relative_to(within))):
            refuse_foreign(directory, trusted)


def _refuse_exchangeable(path: Path) -> None:
    """Refuse a path if another user could exchange what it leads to. Trusted is who has called sudo, and may become
    root anyway; whose home root has been given, as containers do (root's shell reads files there); and the owner of /,
    in a user namespace one without a name."""
    owners = {place.stat().st_uid for place in (Path("/"), Path.home()) if place.is_dir()}
    trusted = {"0", str(os.geteuid()), os.environ.get("SUDO_UID"), *map(str, owners)}
    otherwise = "set BROBUST_CACHE to a directory of root's"
    for name in _way(path):
        found = name.lstat()
        may_exchange = f"who could exchange {path}"
        if str(found.st_uid) not in trusted:
            raise MissingSupport(f"{name} belongs to user {found.st_uid}, {may_exchange}; {otherwise}")
        is_link, is_sticky = stat.S_ISLNK(found.st_mode), found.st_mode & stat.S_ISVTX
        if found.st_mode & 0o022 and not is_link and not is_sticky:
            others = f"may be written by others than its owner, {may_exchange}"
            raise MissingSupport(f"{name} {others}; run `chmod go-w {name}`, or {otherwise}")


def _way(path: Path) -> Iterator[Path]:
    """Yield a path and each one above it, also those of what is a link."""
    for name in (path, *path.parents):
        yield name
        if name.is_symlink():
            yield from _way(name.parent / name.readlink())


class Locked(MissingSupport):
    """Another process holds the lock."""

    def __init__(self, file: Path, holder: str):
        super().__init__(f"{file} is locked by {holder}; wait until that process has ended")
        self.holder = holder


@contextmanager
def locked(file: Path, seconds: float = 60.0, *, named: bool = True) -> Iterator[None]:
    """Hold a lock on a file while the context lasts; the file is created if it is missing. Wait at most `seconds` (0:
    not at all), then raise Locked, which names the process that holds the lock, unless it is not `named`: writing the
    file takes 2 ms. The kernel releases the lock when the process ends, however it ends.

    The holder may remove the file; processes that wait for it then create a new one. A second lock on the same file in
    one process waits as well.
    """
    deadline = time.monotonic() + seconds
    lock = _open(file)
    try:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _has_name(lock, file):
                    break
                removed, lock = lock, _open(file)
                os.close(removed)
                continue
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise Locked(file, _holder(lock)) from None
            time.sleep(POLL_SECONDS)
        if named:
            with writing_to(file):
                os.ftruncate(lock, 0)
                os.pwrite(lock, str(os.getpid()).encode(), 0)
        yield
    finally:
        # Closing is not enough: while another thread starts a program, that program has the open file, too.
        fcntl.flock(lock, fcntl.LOCK_UN)
        os.close(lock)


@contextmanager
def locked_after_others(file: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Hold a lock on a file, however long others do so first: `say` is told then who does."""
    with ExitStack() as held:
        try:
            held.enter_context(locked(file, seconds=0))
        except Locked as by:
            say(by.holder)
            held.enter_context(locked(file, seconds=math.inf))
        yield


def _open(file: Path) -> int:
    try:
        return os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if (full := why_not_written(error, file)) is not None:
            raise full from None
        raise MissingSupport(f"{file} cannot be locked ({reason(error)})") from None


def _has_name(lock: int, file: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(lock), file.lstat())
    except FileNotFoundError:
        return False


def _holder(lock: int) -> str:
    with suppress(OSError):
        if (pid := os.pread(lock, 20, 0)).isdigit():
            return f"process {pid.decode()}"
    return "another process"
