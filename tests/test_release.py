"""What a maintainer does for a release: the version is changed everywhere, what an index refuses is found before."""

import hashlib
import importlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parent.parent
sys.path.append(str(ROOT / "scripts/dist"))

import check_wheel  # noqa: E402
import description  # noqa: E402

VERSION = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
SECONDS = "1700000000"
# The Citation File Format 1.2.0 refuses any other key.
CITATION_KEYS = {
    "abstract", "authors", "cff-version", "commit", "contact", "date-released", "doi", "identifiers", "keywords",
    "license", "license-url", "message", "preferred-citation", "references", "repository", "repository-artifact",
    "repository-code", "title", "type", "url", "version",
}  # fmt: skip


def _is_author(author: dict[str, str]) -> bool:
    return set(author) in ({"name"}, {"family-names", "given-names"}) and all(
        isinstance(v, str) for v in author.values()
    )


def test_the_citation_is_of_this_version_and_in_its_format() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert set(citation) <= CITATION_KEYS
    assert citation["cff-version"] == "1.2.0" and citation["type"] == "software"
    assert citation["version"] == VERSION
    assert " OR ".join(citation["license"]) == "GPL-2.0-only OR BSD-3-Clause"
    for work in (citation, *citation["references"]):
        assert work["title"] and work["authors"] and all(map(_is_author, work["authors"]))
    assert all(work["type"] == "article" and isinstance(work["year"], int) for work in citation["references"])


@pytest.mark.parametrize(
    ("site", "prefix", "expected"),
    [
        ("", "/usr", "file:///usr/share/doc/brobust-host/watch-service.md"),
        ("", "/usr/local", "file:///usr/local/share/doc/brobust-host/watch-service.md"),
        ("https://docs.example.org/b/", "/usr", "https://docs.example.org/b/watch-service.html"),
    ],
)
def test_alerts_of_a_package_link_to_the_site_or_to_the_pages_that_it_brings(
    tmp_path: Path, site: str, prefix: str, expected: str
) -> None:
    checkout, tree = tmp_path / "checkout", tmp_path / "tree"
    for part in ("docs", "packaging/prometheus", "scripts/dist"):
        shutil.copytree(ROOT / part, checkout / part, ignore=shutil.ignore_patterns("data", "*.png"))
    shutil.copy(ROOT / "SECURITY.md", checkout)
    given = re.sub(r'(?m)^documentation = ".*"$', f'documentation = "{site}"', (ROOT / "Cargo.toml").read_text())
    (checkout / "Cargo.toml").write_text(given)
    script = 'set -euo pipefail; . scripts/dist/tree.sh; install_rules "$@"'
    subprocess.run(["bash", "-c", script, "bash", tree, prefix], cwd=checkout, check=True)
    for name in ("brobust-rules.yaml", "brobust-rules-test.yaml"):
        text = (tree / "share/brobust/prometheus" / name).read_text()
        links = re.findall(r"runbook_url: (\S+)#\w+$", text, re.MULTILINE)
        assert set(links) == {expected} and len(links) >= 6 and "invalid" not in text
        # What docs/watch-service.md tells users to do finds every link, whatever it was.
        (command,) = re.findall(r"sed -i '(s,.*)' ", (ROOT / "docs/watch-service.md").read_text())
        moved = subprocess.run(["sed", command], input=text, capture_output=True, text=True, check=True).stdout
        assert moved.count(" https://docs.example.org/brobust/watch-service.html#") == len(links)
    pages = tree / "share/doc/brobust-host"
    runbook = (pages / "watch-service.md").read_text().partition("\n## Runbook\n")[2]
    linked = set(re.findall(r"\]\(([^)#]+)", runbook))
    assert linked and linked <= {page.name for page in pages.iterdir()}


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("see [Install](docs/install.md)", "see Install (`brobust docs install`)"),
        ("[docs/for-senders.md](docs/for-senders.md#a)", "`brobust docs for-senders`"),
        ("![A figure](docs/demo.png)", "*(Figure, in `brobust docs`: A figure.)*"),
        ("[Changelog](CHANGELOG.md), [above](#install)", "Changelog (`CHANGELOG.md`), above"),
        ("[a paper](https://example.org/a.md)", "[a paper](https://example.org/a.md)"),
    ],
)
def test_a_description_has_no_links_into_the_repository(written: str, shown: str) -> None:
    assert description.description(written) == shown


def test_the_readme_is_a_description_that_an_index_can_show() -> None:
    text = description.description((ROOT / "README.md").read_text())
    assert not description.LINK.search(text)
    assert "`brobust docs tutorial`" in text


METADATA = """\
Metadata-Version: 2.4
Name: brobust
Version: 1.2.3
Summary: s
Keywords: a,b
License-Expression: BSD-3-Clause
Requires-Python: >=3.11
Description-Content-Type: text/markdown

# brobust
"""


def _wheel(directory: Path, metadata: str, tag: str = "cp311-abi3-manylinux_2_34_x86_64", *more: str) -> Path:
    wheel = directory / "brobust-1.2.3-cp311-abi3-manylinux_2_34_x86_64.whl"
    with zipfile.ZipFile(wheel, "w") as files:
        files.writestr("brobust-1.2.3.dist-info/METADATA", metadata)
        files.writestr("brobust-1.2.3.dist-info/WHEEL", f"Wheel-Version: 1.0\nTag: {tag}\n")
        for name in more:
            files.writestr(name, "")
    return wheel


def test_a_wheel_without_problems_passes(tmp_path: Path) -> None:
    assert list(check_wheel.problems(_wheel(tmp_path, METADATA), "1.2.3")) == []


@pytest.mark.parametrize(
    ("metadata", "tag", "problem"),
    [
        (METADATA.replace("1.2.3", "1.2.4"), None, "its name has version 1.2.3"),
        (METADATA.replace("Name: brobust", "Name: other"), None, "its name is brobust"),
        (METADATA.replace("Keywords: a,b\n", ""), None, "no Keywords"),
        (METADATA + "[a](docs/a.md)\n", None, r"a link that leads nowhere.*docs/a\.md"),
        (METADATA + "It is not on PyPI yet.\n", None, "pip install brobust"),
        (METADATA, "cp311-abi3-linux_x86_64", "its file WHEEL"),
    ],
)
def test_a_wheel_that_an_index_would_show_wrongly_is_refused(
    tmp_path: Path, metadata: str, tag: str | None, problem: str
) -> None:
    wheel = _wheel(tmp_path, metadata, tag) if tag else _wheel(tmp_path, metadata)
    [found] = check_wheel.problems(wheel, "1.2.3")
    assert re.search(problem, found)


def test_a_wheel_with_kernels_is_under_their_licence_too(tmp_path: Path) -> None:
    tag, kernel = "cp311-abi3-manylinux_2_34_x86_64", "brobust/kernels/bin/virtual-6.12/linux"
    [problem] = check_wheel.problems(_wheel(tmp_path, METADATA, tag, kernel), "1.2.3")
    assert "its kernels are under" in problem
    script = '. scripts/dist/wheel.sh; printf %s "$wheel_licence"'
    licence = _run("bash", "-c", script, cwd=ROOT).stdout
    metadata = METADATA.replace("BSD-3-Clause", licence)
    assert list(check_wheel.problems(_wheel(tmp_path, metadata, tag, kernel), "1.2.3")) == []
    # All that the program for operators has is in the wheel, too.
    assert set(importlib.import_module("image").LICENCES.split(" AND ")) <= set(licence.split(" AND "))


def test_what_is_no_checkout_of_git_is_built_with_a_time_that_is_given(checkout: Path) -> None:
    (checkout / "scripts/setup.sh").write_text("exit 0\n")
    environment = {key: value for key, value in os.environ.items() if key != "SOURCE_DATE_EPOCH"}
    said = _run("scripts/dist.sh", "source", cwd=checkout, env=environment)
    assert said.returncode == 2 and said.stderr.count("\n") == 1 and "give SOURCE_DATE_EPOCH" in said.stderr


def _run(*command: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, **options)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of what git knows."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
    copy = tmp_path / "checkout"
    copy.mkdir()
    subprocess.run(["xargs", "-0", "cp", "--parents", "-t", copy], cwd=ROOT, check=True, input=listed)
    return copy


def test_a_new_version_stands_everywhere_and_the_checklist_finds_it_there(checkout: Path) -> None:
    said = _run("scripts/version.sh", "9.8.7", "2027-01-02", cwd=checkout)
    assert said.returncode == 0, said.stderr
    assert _run("scripts/version.sh", cwd=checkout).stdout == "9.8.7\n"
    said = _run("scripts/release.sh", "versions", cwd=checkout)
    assert said.returncode == 0, said.stdout + said.stderr
    citation = yaml.safe_load((checkout / "CITATION.cff").read_text())
    assert (citation["version"], citation["date-released"]) == ("9.8.7", "2027-01-02")
    assert f"brobust-{VERSION}" not in (checkout / "README.md").read_text()

    (checkout / "CITATION.cff").write_text((ROOT / "CITATION.cff").read_text())
    assert "CITATION.cff is not of version 9.8.7" in _run("scripts/release.sh", "versions", cwd=checkout).stderr


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([""], "'' is no version"),
        (["1.2"], "1.2 is no version"),
        (["0.0.1"], f"not later than {VERSION}"),
        ([VERSION], f"not later than {VERSION}"),
        (["9.0.0", "today"], "today is no date"),
    ],
)
def test_a_version_that_cannot_be_the_next_is_refused(arguments: list[str], reason: str) -> None:
    said = _run(ROOT / "scripts/version.sh", *arguments)
    assert said.returncode == 2 and reason in said.stderr and said.stderr.count("\n") == 1


def test_half_of_a_file_gets_no_checksum(tmp_path: Path) -> None:
    """That of a call that was killed, or failed, while it wrote; what earlier ones have completed stays."""
    (tmp_path / "scripts/dist").mkdir(parents=True)
    for name, script in (("setup.sh", "exit 0"), ("version.sh", "echo 1.2.3")):
        (tmp_path / "scripts" / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "scripts" / name).chmod(0o755)
    for name in ("dist.sh", "parts.sh"):
        shutil.copy(ROOT / "scripts" / name, tmp_path / "scripts" / name)
    (tmp_path / "scripts/dist/parts.sh").write_text(
        "build_wheel() { sleep 0.1; echo whole >dist/brobust-1.2.3.whl; }\n"
        "build_image() { sleep 0.1; echo half >dist/brobust-1.2.3.tar; kill -KILL $$; }\n"
        'build_sbom() { sleep 0.1; echo half >dist/brobust-1.2.3.json; [ -z "${fails-}" ]; echo whole '
        ">dist/brobust-1.2.3.json; }\n"
    )

    def build(*parts: str, **variables: str) -> int:
        environment = {**os.environ, "SOURCE_DATE_EPOCH": SECONDS, **variables}
        return _run(tmp_path / "scripts/dist.sh", *parts, env=environment).returncode

    assert [build("wheel"), build("image"), build("sbom", fails="yes")] == [0, -9, 1]
    assert build("sbom") == 0
    lines = (tmp_path / "dist/SHA256SUMS").read_text().splitlines()
    assert [line.split()[1] for line in lines] == ["brobust-1.2.3.json", "brobust-1.2.3.whl"]
    assert (tmp_path / "dist/brobust-1.2.3.json").read_text() == "whole\n"
    assert {file.name for file in (tmp_path / "dist").iterdir()} == {"SHA256SUMS", *(line.split()[1] for line in lines)}


def test_a_package_of_a_later_commit_is_newer_until_the_version_is_tagged(checkout: Path) -> None:
    for name, script in (("setup.sh", "exit 0"), ("version.sh", "echo 1.2.3")):
        (checkout / "scripts" / name).write_text(f"#!/bin/sh\n{script}\n")
    shutil.rmtree(checkout / "scripts/dist")
    (checkout / "scripts/dist").mkdir()
    (checkout / "scripts/dist/parts.sh").write_text(
        'build_deb() { touch "dist/brobust-host_$version-${revision}_$1.deb"; }\n'
    )
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@b.invalid")
    _run("git", "init", "-q", cwd=checkout).check_returncode()
    built = []
    for date, tag in ((1700000000, ""), (1700000060, ""), (1700000120, "v1.2.3")):
        environment = {**os.environ, "GIT_COMMITTER_DATE": f"{date} +0100"}
        environment.pop("SOURCE_DATE_EPOCH", None)
        _run(*git, "commit", "-q", "--allow-empty", "-m", "x", cwd=checkout, env=environment).check_returncode()
        if tag:
            _run("git", "tag", tag, cwd=checkout).check_returncode()
        said = _run("scripts/dist.sh", "deb", "aarch64", cwd=checkout, env=environment)
        assert said.returncode == 0, said.stderr
        [package] = (checkout / "dist").glob("*.deb")  # that of the commit before is gone
        built.append(package.name)
    assert built == [
        "brobust-host_1.2.3-1+20231114221320_aarch64.deb",
        "brobust-host_1.2.3-1+20231114221420_aarch64.deb",
        "brobust-host_1.2.3-1_aarch64.deb",
    ]


def test_publishing_is_refused_without_what_is_published(checkout: Path) -> None:
    said = _run("scripts/publish.sh", cwd=checkout)
    assert said.returncode == 2 and "dist/ is not what `make dist` builds" in said.stderr
    said = _run("scripts/publish.sh", "--key", "nobody@example.org", cwd=checkout)
    assert said.returncode == 2 and "no secret key nobody@example.org" in said.stderr
    assert not (checkout / "publish").exists()


def test_apt_of_another_machine_has_lists_of_its_own_and_answers_in_english(tmp_path: Path) -> None:
    ask = f"""
    . {ROOT}/scripts/parts.sh
    apt_of {tmp_path}/lists-of-both "amd64 arm64" apt-config dump --format '%f=%v%n'
    apt_of {tmp_path}/lists-of-both "arm64 amd64" apt-get install no-such-package || :
    """
    if shutil.which("apt-config") is None:
        pytest.skip("this host has no apt")
    german = {**os.environ, "LC_ALL": "C.UTF-8", "LANGUAGE": "de"}
    said = _run("bash", "-c", ask, env=german)
    assert said.returncode == 0 and "Unable to locate package no-such-package" in said.stderr
    architectures = [line for line in said.stdout.splitlines() if line.startswith("APT::Architecture")]
    assert architectures == [
        "APT::Architecture=amd64", "APT::Architectures=", "APT::Architectures::=amd64", "APT::Architectures::=arm64",
    ]  # fmt: skip
    assert f"Dir::State={tmp_path}/lists-of-both\n" in said.stdout and (tmp_path / "lists-of-both/lists").is_dir()


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    """A directory with packages of two architectures in pool/."""
    for tool, package in {"apt-ftparchive": "apt-utils", "dpkg-deb": "dpkg", "gpg": "gnupg"}.items():
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is missing; apt-get install {package}")
    for architecture in ("amd64", "arm64"):
        tree = tmp_path / architecture
        (tree / "DEBIAN").mkdir(parents=True)
        control = f"Package: brobust-host\nVersion: 1\nArchitecture: {architecture}\nMaintainer: a <a@b.invalid>\n"
        (tree / "DEBIAN/control").write_text(f"{control}Description: d\n")
        (tmp_path / "apt/pool").mkdir(parents=True, exist_ok=True)
        package = tmp_path / f"apt/pool/brobust-host_1_{architecture}.deb"
        subprocess.run(["dpkg-deb", "--build", tree, package], check=True, stdout=subprocess.DEVNULL)
    return tmp_path / "apt"


@pytest.fixture
def key() -> Iterator[tuple[str, dict[str, str]]]:
    """A key of nobody's, and the environment with it."""
    # gpg-agent's socket needs a short name; the agent removes it when it has been told to end.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        environment = {**os.environ, "GNUPGHOME": home, "SOURCE_DATE_EPOCH": SECONDS}
        made = ["gpg", "--batch", "--quiet", "--passphrase", "", "--quick-gen-key", "release@b.invalid"]
        subprocess.run([*made, "ed25519", "sign"], check=True, env=environment, stderr=subprocess.DEVNULL)
        yield "release@b.invalid", environment
        subprocess.run(["gpgconf", "--kill", "gpg-agent"], env=environment, check=True)


def test_a_repository_for_apt_names_its_packages_by_hash_and_is_signed(
    pool: Path, key: tuple[str, dict[str, str]]
) -> None:
    name, environment = key
    made = _run(ROOT / "scripts/apt.sh", pool, name, env=environment)
    assert made.returncode == 0, made.stderr
    release = (pool / "dists/stable/Release").read_text()
    assert "Architectures: amd64 arm64\n" in release and "Date: Tue, 14 Nov 2023 22:13:20 " in release
    for architecture in ("amd64", "arm64"):
        listing = (pool / f"dists/stable/main/binary-{architecture}/Packages").read_bytes()
        assert hashlib.sha256(listing).hexdigest() in release
        package = f"pool/brobust-host_1_{architecture}.deb"
        assert f"Filename: {package}\n".encode() in listing
        assert hashlib.sha256((pool / package).read_bytes()).hexdigest().encode() in listing
    signed = pool / "dists/stable/InRelease"
    assert _run("gpg", "--verify", signed, env=environment).returncode == 0
    signed.write_text(signed.read_text().replace("brobust", "tsuborb", 1))
    assert _run("gpg", "--verify", signed, env=environment).returncode != 0

    assert _run(ROOT / "scripts/apt.sh", pool, env=environment).returncode == 0
    assert (pool / "dists/stable/Release").read_text() == release
    assert not signed.exists(), "an unsigned repository keeps no old signature"


def test_a_repository_is_refused_without_packages_or_key(tmp_path: Path, pool: Path) -> None:
    for arguments, reason in (([tmp_path], "has no .deb"), ([pool, "nobody@b.invalid"], "no secret key")):
        said = _run(ROOT / "scripts/apt.sh", *arguments)
        assert said.returncode == 2 and reason in said.stderr and said.stderr.count("\n") == 1
