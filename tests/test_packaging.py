"""What `make dist` packs besides programs: the unit and the manifests fit the program, and packing is reproducible."""

import hashlib
import importlib.util
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

from brobust.host.programs import host_program

ROOT = Path(__file__).parent.parent
PACKAGING = ROOT / "packaging"
SECONDS = 1_700_000_000


def _script(name: str) -> ModuleType:
    specification = importlib.util.spec_from_file_location(name, ROOT / "scripts/dist" / f"{name}.py")
    assert specification and specification.loader
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module  # dataclasses look for it there
    specification.loader.exec_module(module)
    return module


@pytest.mark.parametrize("file", ["brobust-watch.service", "kubernetes/daemonset.yaml"])
def test_a_service_gives_options_that_the_program_has(file: str) -> None:
    [line] = re.findall(r"^.*watch,? .*--serve.*$", (PACKAGING / file).read_text(), flags=re.MULTILINE)
    known = subprocess.run([host_program(), "watch", "--help"], check=True, stdout=subprocess.PIPE, text=True).stdout
    for option in re.findall(r"--[a-z-]+", line):
        assert re.search(rf"{option}\b", known), f"{file}: {option}"


def test_the_documentation_of_the_unit_is_a_page_that_packages_bring(tmp_path: Path) -> None:
    [name] = re.findall(
        r"^Documentation=man:(.*)\(1\)$", (PACKAGING / "brobust-watch.service").read_text(), re.MULTILINE
    )
    subprocess.run([host_program(), "generate", tmp_path], check=True)
    assert (tmp_path / f"man1/{name}.1").exists()


def test_the_manifests_name_the_image_of_this_version() -> None:
    version = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    assert f'newTag: "{version}"' in (PACKAGING / "kubernetes/kustomization.yaml").read_text()


@pytest.mark.parametrize("file", ["docs/watch-service.md", "scripts/publish.sh"])
def test_an_image_is_copied_to_a_registry_with_all_its_architectures(file: str) -> None:
    # Without --all skopeo copies that of its own machine, which no other node of a cluster can run.
    copies = [line for line in (ROOT / file).read_text().splitlines() if re.search(r"skopeo copy .*docker://", line)]
    assert copies and all(" --all " in line for line in copies)


# A program that writes empty pages instead of the one that takes minutes to build, and what packs it.
PACK = r"""
set -euo pipefail
. scripts/parts.sh
say() { :; }
size() { :; }
refuse() { echo "$*" >&2; exit 2; }
for file in scripts/dist/*.sh; do . "$file"; done
build_binary_x86_64() { :; }
program_of() { echo "$PWD/program"; }
linked_packages() { echo "glibc (= 1)"; }
python3() { echo notices; }
version=1.2.3 revision=1+20231114221320
umask 022
mkdir dist
"$@" x86_64
"""
PROGRAM = """#!/bin/sh
mkdir -p $2/man1 $2/completions
for page in brobust brobust-watch brobust-doctor; do echo "$page" >$2/man1/$page.1; done
for file in brobust.bash _brobust brobust.fish; do echo "$file" >$2/completions/$file; done
"""


def _packed(checkout: Path, form: str) -> Path:
    """What this form of the program for operators is, built in a directory with some of our files."""
    for part in ("docs", "packaging", "scripts", "LICENSES"):
        shutil.copytree(ROOT / part, checkout / part, ignore=shutil.ignore_patterns("data", "*.png", "__pycache__"))
    for part in ("SECURITY.md", "CHANGELOG.md", "LICENSE", "Cargo.toml"):
        shutil.copy(ROOT / part, checkout)
    (checkout / "program").write_text(PROGRAM)
    (checkout / "program").chmod(0o755)
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(SECONDS), "LC_ALL": "C.UTF-8", "TZ": "UTC"}
    subprocess.run(["bash", "-c", PACK, "bash", f"build_{form}"], cwd=checkout, check=True, env=environment)
    [package] = (checkout / "dist").iterdir()
    return package


@pytest.mark.parametrize("form", ["deb", "rpm", "tarball"])
def test_a_package_depends_neither_on_the_file_system_nor_on_the_modes_of_where_it_was_built(
    tmp_path: Path, form: str
) -> None:
    tool = {"deb": "dpkg-deb", "rpm": "rpmbuild"}.get(form, "tar")
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is missing; scripts/setup.sh dist installs it")
    one = _packed(tmp_path, form).read_bytes()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:  # where directories have other sizes
        Path(memory).chmod(0o2755)
        assert _packed(Path(memory), form).read_bytes() == one


def test_the_commands_of_the_tarball_replace_a_program_that_runs_and_remove_all_of_it(tmp_path: Path) -> None:
    archive = _packed(tmp_path, "tarball")
    (tmp_path / "unpacked").mkdir()
    subprocess.run(["tar", "-C", tmp_path / "unpacked", "-xf", archive], check=True)
    [tree] = (tmp_path / "unpacked").iterdir()
    shutil.copy("/bin/sleep", tree / "bin/brobust")
    prefix = tmp_path / "local"
    prefix.mkdir()

    def do(key: str) -> None:
        [command] = re.findall(rf"^{key}: *(.*?)(?:  +\(any.*)?$", (tree / "README").read_text(), flags=re.MULTILINE)
        command = command.replace("sudo ", "").replace("/usr/local", str(prefix))
        subprocess.run(["sh", "-c", command], cwd=tree, check=True)

    do("Install")
    with subprocess.Popen([prefix / "bin/brobust", "60"]) as running:
        time.sleep(0.2)
        try:
            do("Install")
        finally:
            running.kill()
    do("Remove")
    assert [path for path in prefix.rglob("*") if path.is_file() or "brobust" in path.name] == []


def _after_removal(form: str) -> list[str]:
    """The script that the package runs last, and its arguments."""
    if form == "deb":
        return [str(PACKAGING / "debian/postrm"), "purge"]
    spec = (PACKAGING / "rpm/brobust-host.spec").read_text()
    return ["-c", spec.partition("%postun\n")[2].partition("\n\n%")[0], "postun", "0"]


@pytest.mark.root
@pytest.mark.parametrize("form", ["deb", "rpm"])
def test_a_removal_leaves_no_locks_and_keeps_what_is_needed_to_undo_something(form: str) -> None:
    # In directories of the test's own.
    script = """
    mount -t tmpfs none /run && mount -t tmpfs none /etc
    mkdir /run/brobust /run/brobust-cc /run/brobust-watch
    touch /run/brobust/lock /run/brobust/sysctl.lock /run/brobust-cc/lock
    sh "$@" && find /run -name 'brobust*' && echo then
    mkdir -p /run/brobust/4711-1 /run/brobust-cc
    touch /run/brobust/lock /run/brobust-cc/lock /run/brobust-cc/bbr_steady.json
    sh "$@" && cd /run && find brobust* -type f -o -type d -empty
    """
    inside = ["unshare", "--mount", "sh", "-c", script, "sh", *_after_removal(form)]
    done = subprocess.run(inside, capture_output=True, text=True, check=True)
    locks_only, _, needed = done.stdout.partition("then\n")
    kept = ["brobust-cc/bbr_steady.json", "brobust-cc/lock", "brobust/4711-1", "brobust/lock"]
    assert (locks_only, sorted(needed.split())) == ("", kept), done


def _tree(root: Path, names: list[str]) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
        (root / name).chmod(0o644)
    return root


def test_an_image_depends_on_its_files_alone_and_names_blobs_by_their_hash(tmp_path: Path) -> None:
    image = _script("image")
    one, other = _tree(tmp_path / "one", ["usr/b", "etc/a"]), _tree(tmp_path / "other", ["etc/a", "usr/b"])
    os.utime(other / "usr/b", (1, 1))
    files = image.image({"amd64": one, "arm64": other}, "1.2.3", SECONDS)
    assert files == image.image({"arm64": one, "amd64": other}, "1.2.3", SECONDS)
    (other / "etc/a").chmod(0o755)
    assert files != image.image({"amd64": one, "arm64": other}, "1.2.3", SECONDS), "modes count"

    blobs = {name.removeprefix("blobs/sha256/"): content for name, content in files.items() if "sha256" in name}
    assert all(hashlib.sha256(content).hexdigest() == name for name, content in blobs.items())

    def named(described: dict[str, str]) -> bytes:
        return blobs[described["digest"].removeprefix("sha256:")]

    [index] = json.loads(files["index.json"])["manifests"]
    image.write(tmp_path / "archive.tar", files, SECONDS)
    assert image.digest(tmp_path / "archive.tar") == index["digest"]
    of_each = json.loads(named(index))["manifests"]
    assert [one["platform"] for one in of_each] == [
        {"architecture": "amd64", "os": "linux"},
        {"architecture": "arm64", "os": "linux"},
    ]
    for described in of_each:
        manifest = json.loads(named(described))
        configuration = json.loads(named(manifest["config"]))
        assert configuration["architecture"] == described["platform"]["architecture"]
        assert configuration["config"]["User"] == "65534:65534"
        with tarfile.open(fileobj=io.BytesIO(named(manifest["layers"][0]))) as layer:
            assert [(entry.name, entry.uid, entry.mtime) for entry in layer if entry.isfile()] == [
                ("etc/a", 0, SECONDS),
                ("usr/b", 0, SECONDS),
            ]


@pytest.mark.parametrize("architecture", ["x86_64", "aarch64"])
def test_what_is_linked_into_the_program_may_be_passed_on_with_it(architecture: str) -> None:
    # Of alternatives, one suffices. Each of these goes with our BSD licence and with libelf's LGPL, version 3. (With
    # version 2 of the GPL alone, Apache-2.0 would not.)
    allowed = {"MIT", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "Zlib", "Unlicense", "Unicode-3.0", "0BSD", "ISC"}
    packages = _script("components").rust_packages("brobust-command", architecture)
    assert {"brobust-command", "libbpf-sys"} <= {package.name for package in packages}
    # What our packages say that they are under, of Debian's libraries too.
    said = _script("image").LICENCES
    assert f"License: {said}\n" in (PACKAGING / "rpm/brobust-host.spec").read_text()
    for package in packages:
        for part in re.sub(r"[()]", "", package.licence or "").split(" AND "):
            assert allowed & set(part.split(" OR ")), f"{package.name}: {package.licence}"
            assert set(part.split(" OR ")) & set(said.split(" AND ")), f"{package.name}: {package.licence}"


def test_what_a_program_consists_of_has_the_libraries_of_its_compilers() -> None:
    if shutil.which("dpkg-query") is None:
        pytest.skip("this is no Debian, where packages are built")
    parts = {part.name: part for part in _script("components").linked(["brobust-client"], "x86_64")}
    for name in ("rust-std", f"gcc-{_script('components')._read('gcc', '-dumpversion').strip()}"):
        assert parts[name].version and all(notice.exists() for notice in parts[name].notices), name


def test_the_bill_of_a_wheel_has_the_kernels_that_are_in_it(tmp_path: Path) -> None:
    kernel = {"source": "linux-source-6.12 6.12.1-1", "sha256": "0" * 64}
    with zipfile.ZipFile(tmp_path / "it.whl", "w") as files:
        files.writestr("brobust/kernels/bin/virtual-6.12/kernel.json", json.dumps(kernel))
    [found] = _script("components").kernels(tmp_path / "it.whl")
    assert (found.name, found.version, found.sha256) == ("linux", "6.12.1-1", "0" * 64)
    assert "/linux@6.12.1-1?" in found.purl and found.licence.startswith("GPL-2.0-only")


def test_the_notices_have_the_authors_of_bundled_libraries_and_licences_that_debian_only_names(
    capsys: pytest.CaptureFixture[str],
) -> None:
    components = _script("components")
    if not all(path.exists() for path in components.COMMON_LICENCES):
        pytest.skip("this is no Debian, where packages are built")
    rust = components.rust_packages("brobust-command", "x86_64")
    components.print_notices([package for package in rust if package.name in ("libbpf-sys", "zstd-sys")])
    printed = capsys.readouterr().out
    for part in ("The Libbpf Authors", "Meta Platforms, Inc", "Version 2.1, February 1999", "Version 3, 29 June 2007"):
        assert part in printed
