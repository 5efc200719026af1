"""Ask apt for Debian's packages of kernels: those that the host's own lists offer, and Debian's backports, which have
newer ones. Nothing is installed, and the host's lists stay as they are."""

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from brobust import files
from brobust.host.cache import cache_directory
from brobust.host.locks import locked, private_directory, refuse_foreign_to_root

# Of Debian's package debian-archive-keyring, which Ubuntu has too: apt refuses lists that these keys have not signed.
KEYS = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
DEBIAN = "http://deb.debian.org/debian/"  # unless the host's apt uses another mirror
SECONDS = 60.0  # fetching the lists of backports (300 kB) takes one
DAY = 86_400.0


@dataclass(frozen=True)
class Archive:
    """Packages that apt knows of: with no options, from the host's lists."""

    options: tuple[str, ...] = ()

    def names(self, prefix: str) -> list[str]:
        return self._asked("pkgnames", prefix).split()

    def offered(self, package: str) -> tuple[str, int] | None:
        """Return the version and the size in bytes of what would be downloaded; None if there is no such package."""
        shown = self._asked("show", "--no-all-versions", package)
        fields = dict(re.findall(r"^(Version|Size): (\S+)$", shown, re.MULTILINE))
        return (fields["Version"], int(fields["Size"])) if len(fields) == 2 else None

    def dependencies(self, package: str) -> list[str]:
        """Return what the package depends on; what is not in the archive, or not as a package of that name, has angle
        brackets."""
        return re.findall(r"^\s*Depends: (\S+)$", self._asked("depends", package), re.MULTILINE)

    def download(self, *packages: str) -> list[str]:
        """Return the command that downloads packages to the directory in which it runs. If apt's own download user
        cannot write there, apt says so and downloads as our user."""
        return ["apt-get", *self.options, "download", "-q", *packages]

    def _asked(self, *arguments: str) -> str:
        if shutil.which("apt-cache") is None:
            return ""
        command = ["apt-cache", *self.options, *arguments]
        in_english = {**os.environ, "LC_ALL": "C"}  # elsewhere a package "hängt ab von" others
        return subprocess.run(command, capture_output=True, text=True, check=False, env=in_english).stdout


HOST = Archive()


def archives() -> Iterator[Archive]:
    """Yield the host's lists, and then those of Debian's backports, which are fetched only if somebody gets so far."""
    yield HOST
    if (newer := _backports()) is not None:
        yield newer


@cache
def _backports() -> Archive | None:
    """Return the backports of Debian's stable release, with lists of our own, which are fetched once a day into the
    cache; None if they cannot be had: without apt, Debian's keys, room or the network."""
    if shutil.which("apt-get") is None or not KEYS.is_file():
        return None
    root = private_directory(cache_directory() / "backports")
    refuse_foreign_to_root(root, cache_directory())
    settings = {
        "Dir::Etc::SourceList": root / "sources",
        "Dir::Etc::SourceParts": "-",
        "Dir::State::Lists": root / "lists",
        "Dir::Cache": root,
        "Acquire::Languages": "none",
        "Acquire::Retries": 1,
        "Acquire::http::Timeout": 10,
        "APT::Sandbox::User": "root",  # its own user may not write here
    }
    archive, fetched = Archive(tuple(f"-o{name}={value}" for name, value in settings.items())), root / "fetched"
    try:
        with locked(root / "lock", 2 * SECONDS):
            if not fetched.is_file() or time.time() - fetched.stat().st_mtime > DAY:
                for needed in ("lists/partial", "archives/partial"):
                    (root / needed).mkdir(parents=True, exist_ok=True)
                (root / "sources").write_text(f"deb [signed-by={KEYS}] {_mirror()} stable-backports main\n")
                if _succeeds(["apt-get", *archive.options, "-qq", "--error-on=any", "update"]):
                    files.sync(root)
                    fetched.touch()
            return archive if fetched.is_file() else None
    except OSError:  # a full disk
        return None


def _succeeds(command: list[str]) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False, timeout=SECONDS).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def _mirror() -> str:
    """Return the address from which the host's apt has Debian's packages."""
    command = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Label: Debian", "Origin: Debian"]
    found = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()
    return next((address for address in found if address.startswith(("http://", "https://"))), DEBIAN)
