#!/usr/bin/env python3
"""Say what programs of ours consist of: `components.py notices` prints the licences of everything that is linked into
them, and `components.py sbom` their CycloneDX bill of materials.

Cargo.lock says which Rust packages there are, and Debian's own files what the static C libraries are. No tool that was
looked at knows both (cargo-cyclonedx has only the first, and takes minutes to compile).
"""

import argparse
import hashlib
import json
import os
import platform
import subprocess
import tomllib
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zipfile import ZipFile

ROOT = Path(__file__).parents[2]
ARCHITECTURES = ("x86_64", "aarch64")
# The Debian packages whose static libraries are in the program. scripts/dist/aarch64.sh fetches those for aarch64.
LIBRARIES = ("libc6-dev", "libelf-dev", "zlib1g-dev", "libgcc-*-dev")
FETCHED = ROOT / "target/aarch64"
# The last two: of C libraries that are in Rust packages, and have authors of their own.
NOTICES = (
    "LICENSE*", "LICENCE*", "COPYING*", "COPYRIGHT*", "NOTICE*", "UNLICENSE*",
    "libbpf/LICENSE.BSD*", "zstd/LICENSE",
)  # fmt: skip
# The texts that other notices only name. Systems other than Debian do not have them.
COMMON_LICENCES = [Path("/usr/share/common-licenses") / name for name in ("LGPL-2.1", "LGPL-3", "GPL-3")]


@dataclass(frozen=True)
class Component:
    name: str
    version: str
    purl: str
    licence: str | None
    """An SPDX expression."""
    sha256: str | None
    notices: tuple[Path, ...]


def rust_packages(program: str, architecture: str) -> list[Component]:
    """Return the packages that are linked into one of ours."""
    target = f"{architecture}-unknown-linux-gnu"
    metadata = _read("cargo", "metadata", "--locked", "--format-version=1", "--filter-platform", target)
    packages = {package["id"]: package for package in json.loads(metadata)["packages"]}
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
    checksums = {(package["name"], package["version"]): package.get("checksum") for package in lock}
    # `cargo tree` alone of all tools knows which packages a program really gets.
    listing = _read(
        *("cargo", "tree", "--locked", "--package", program, "--target", target, "--edges", "normal,no-proc-macro"),
        *("--prefix", "none", "--format", "{p}"),
    )
    used = {(words[0], words[1].removeprefix("v")) for line in listing.splitlines() if (words := line.split())}
    found = [package for package in packages.values() if (package["name"], package["version"]) in used]
    return [
        Component(
            name=package["name"],
            version=package["version"],
            purl=f"pkg:cargo/{package['name']}@{package['version']}",
            # Old manifests separate licences by a slash, which means OR.
            licence=(package["license"] or "").replace("/", " OR ").replace("  ", " ") or None,
            sha256=checksums.get((package["name"], package["version"])),
            notices=_notices(Path(package["manifest_path"]).parent),
        )
        for package in sorted(found, key=lambda package: (package["name"], package["version"]))
    ]


def c_libraries(architecture: str) -> list[Component]:
    """Return the C libraries that are linked into each program, as Debian packages: this machine's, or fetched ones."""
    found = []
    for package in LIBRARIES:
        package = package.replace("*", _read("gcc", "-dumpversion").strip())
        shown, system = "${source:Package} ${source:Version}", Path("/")
        if architecture == "x86_64":
            source, version = _read("dpkg-query", "-W", "-f", shown, f"{package}:amd64").split()
        else:
            [file], system = FETCHED.glob(f"packages/{package}_*.deb"), FETCHED / "system"
            source, version = _read("dpkg-deb", "--show", f"--showformat={shown}", str(file)).split()
        notice = system / f"usr/share/doc/{package}/copyright"
        notices = (notice,) if notice.exists() else ()
        found.append(Component(source, version, _of_debian(source, version), None, None, notices))
    return found


def _of_debian(source: str, version: str) -> str:
    distribution = platform.freedesktop_os_release()
    return f"pkg:deb/{distribution['ID']}/{source}@{version}?arch=source&distro={distribution['VERSION_CODENAME']}"


def kernels(wheel: Path) -> list[Component]:
    """Return the kernels for virtual time in a wheel, each built from Debian's package of the same version."""
    with ZipFile(wheel) as files:
        described = [json.loads(files.read(name)) for name in files.namelist() if name.endswith("/kernel.json")]
    of_each = [(kernel["source"].split()[1], kernel["sha256"]) for kernel in described]
    licence = "GPL-2.0-only WITH Linux-syscall-note"
    return [
        Component("linux", version, _of_debian("linux", version), licence, sha256, ()) for version, sha256 in of_each
    ]


def rust_library(architecture: str) -> Component:
    """Return Rust's standard library, of which Debian's compiler and rustup's have notices in different places: we take
    it under Apache-2.0, whose text is the same everywhere."""
    fetched = FETCHED / "compiler/rustc"
    compiler = str(fetched) if architecture == "aarch64" and fetched.exists() else "rustc"
    version = _read(compiler, "--version").split()[1]
    text = Path("/usr/share/common-licenses/Apache-2.0")
    return Component("rust-std", version, f"pkg:github/rust-lang/rust@{version}", "MIT OR Apache-2.0", None, (text,))


def scripts() -> list[Component]:
    """Return what the Python package's page of `brobust explore` brings, as npm has it."""
    explore = ROOT / "python/brobust/explore"
    sha256 = hashlib.sha256((explore / "uPlot.iife.min.js").read_bytes()).hexdigest()
    return [Component("uplot", "1.6.32", "pkg:npm/uplot@1.6.32", "MIT", sha256, (explore / "uPlot.LICENSE",))]


def print_notices(components: list[Component]) -> None:
    """Print every licence text once, above it the packages that it belongs to."""
    texts: dict[str, list[str]] = {}
    for component in components:
        for notice in component.notices:
            texts.setdefault(_text(notice), []).append(f"{component.name} {component.version}")
    for path in COMMON_LICENCES:
        texts.setdefault(_text(path), []).append(str(path))
    print("This contains these works of others, under these licences.")
    for component in components:
        print(f"  {component.name} {component.version}: {component.licence or 'see below'}")
    # Who passes on a program with the LGPL's libraries in it also says how it is linked with other versions of them.
    print(
        "The sources of those that Debian has are at https://snapshot.debian.org/package/NAME/VERSION/, those of Rust"
    )
    print("packages at https://crates.io; scripts/dist.sh in our sources links all of them again, also changed ones.")
    for text, owners in texts.items():
        print(f"\n{'=' * 100}\n{', '.join(dict.fromkeys(owners))}\n{'-' * 100}\n{text}")


def _text(notice: Path) -> str:
    return "\n".join(line.rstrip() for line in notice.read_text(errors="replace").strip().splitlines())


def print_sbom(name: str, version: str, components: list[Component], python: Path | None) -> None:
    """Print a CycloneDX document; `python` is what `uv export --format cyclonedx1.5` has written."""
    main = {"type": "application", "bom-ref": name, "name": name, "version": version,
            "licenses": [{"expression": "GPL-2.0-only OR BSD-3-Clause"}]}  # fmt: skip
    listed = [_cyclonedx(component) for component in components]
    if python:
        listed += json.loads(python.read_text())["components"]
    content = json.dumps([main, listed], sort_keys=True)
    date = datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), UTC)
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        # The same content has the same number.
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, content)}",
        "version": 1,
        "metadata": {"timestamp": f"{date:%Y-%m-%dT%H:%M:%SZ}", "component": main},
        "components": listed,
    }
    print(json.dumps(document, indent=1))


def _cyclonedx(component: Component) -> dict[str, Any]:
    document: dict[str, Any] = {
        "type": "library", "bom-ref": component.purl, "name": component.name, "version": component.version,
        "purl": component.purl,
    }  # fmt: skip
    if component.licence:
        document["licenses"] = [{"expression": component.licence}]
    if component.sha256:
        document["hashes"] = [{"alg": "SHA-256", "content": component.sha256}]
    return document


def _notices(directory: Path) -> tuple[Path, ...]:
    found = {path for pattern in NOTICES for path in directory.glob(pattern) if path.is_file()}
    return tuple(sorted(found))


def _read(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def linked(programs: list[str], architecture: str) -> list[Component]:
    """Return everything that is linked into these packages of the workspace, ours too."""
    found = {one for program in programs for one in rust_packages(program, architecture)}
    of_page = scripts() if "brobust-python" in programs else []
    ordered = sorted(found, key=lambda one: (one.name, one.version))
    return [*ordered, rust_library(architecture), *c_libraries(architecture), *of_page]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    notices = commands.add_parser("notices")
    sbom = commands.add_parser("sbom")
    sbom.add_argument("name")
    sbom.add_argument("version")
    sbom.add_argument("--python", type=Path)
    sbom.add_argument("--wheel", type=Path, help="the wheel whose kernels are listed, too")
    for command in (notices, sbom):
        command.add_argument("--architecture", choices=ARCHITECTURES, default=ARCHITECTURES[0])
        command.add_argument("program", nargs="+", help="a package of this workspace")
    arguments = parser.parse_args()
    components = linked(arguments.program, arguments.architecture)
    if arguments.command == "notices":
        # Ours, which have no checksum, are what the notices are not about.
        print_notices([one for one in components if one.sha256 or not one.purl.startswith("pkg:cargo/")])
    else:
        components += kernels(arguments.wheel) if arguments.wheel else []
        print_sbom(arguments.name, arguments.version, components, arguments.python)


if __name__ == "__main__":
    main()
