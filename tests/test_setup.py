"""What sets a checkout up leaves nothing behind when it is interrupted, neither on the host nor half of a file."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def _stub(directory: Path, name: str, script: str) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / name).write_text(f"#!/bin/bash\n{script}\n")
    (directory / name).chmod(0o755)


@pytest.mark.root
def test_services_may_start_again_after_an_interrupted_setup(tmp_path: Path) -> None:
    stubs = tmp_path / "bin"
    _stub(stubs, "dpkg-query", "exit 1")
    # Ctrl-C, while packages are installed, comes to all that runs in the terminal.
    _stub(stubs, "apt-get", f'case "$*" in *install*) ls /usr/sbin >{tmp_path}/seen; kill -INT 0; sleep 9;; esac')
    script = """
    mount -t tmpfs none /usr/sbin
    trap : INT
    scripts/setup.sh dist
    echo "status $?"
    ls /usr/sbin
    """
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script], cwd=ROOT, capture_output=True, text=True, check=True,
        env={**os.environ, "PATH": f"{stubs}:{os.environ['PATH']}"}, start_new_session=True,
    )  # fmt: skip
    assert (tmp_path / "seen").read_text() == "policy-rc.d\n"
    assert done.stdout == "status 130\n", done


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A directory with what scripts/rust_deps.sh reads, and a file that cargo has compiled."""
    root = tmp_path / "checkout"
    (root / "scripts").mkdir(parents=True)
    shutil.copy(ROOT / "scripts/rust_deps.sh", root / "scripts")
    (root / "crates/one").mkdir(parents=True)
    for file in ("Cargo.lock", "Cargo.toml", "crates/one/Cargo.toml"):
        (root / file).write_text(file)
    for profile in ("release", "debug"):
        (root / "target" / profile / "deps").mkdir(parents=True)
        (root / "target" / profile / "deps/libone.rlib").write_text(profile)
    return root


def test_crates_of_others_are_taken_from_the_cache_as_a_whole_or_not_at_all(checkout: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    command = checkout / "scripts/rust_deps.sh"
    subprocess.run([command, "keep"], check=True, env=environment)
    compiled, target = "release/deps/libone.rlib", checkout / "target"

    def without_any() -> None:
        shutil.rmtree(target)
        (target / "dist").mkdir(parents=True)

    without_any()
    # What Ctrl-C does, and a machine that is switched off: half of the files are there.
    killing = {**environment, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
    _stub(tmp_path / "bin", "tar", f'{shutil.which("tar")} "$@"; kill -KILL $PPID')
    subprocess.run([command, "restore"], check=False, env=killing)
    assert not (target / compiled).exists()
    subprocess.run([command, "restore"], check=True, env=environment)
    assert (target / compiled).read_text() == "release"
    assert {file.name for file in target.iterdir()} == {"debug", "dist", "release"}

    without_any()
    [kept] = (tmp_path / "cache/brobust/rust").iterdir()
    kept.write_bytes(kept.read_bytes()[:100])
    subprocess.run([command, "restore"], check=True, env=environment)
    assert [file.name for file in target.iterdir()] == ["dist"], "a damaged file costs nothing else"
    assert not kept.exists()

    (target / "kept/debug").mkdir(parents=True)  # of a call that was killed between the two
    (target / "release").mkdir()
    subprocess.run([command, "restore"], check=True, env=environment)
    assert not (target / "kept").exists()


@pytest.mark.root
@pytest.mark.parametrize("place", ["cache/brobust/rust", "cache/brobust/rust/*.zst"])
def test_root_runs_nothing_that_another_user_has_put_into_the_cache(checkout: Path, tmp_path: Path, place: str) -> None:
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    command = checkout / "scripts/rust_deps.sh"
    subprocess.run([command, "keep"], check=True, env=environment)
    (foreign,) = tmp_path.glob(place)
    for owner, is_taken in ((65534, False), (0, True)):
        shutil.rmtree(checkout / "target")
        (checkout / "target").mkdir()
        os.chown(foreign, owner, owner)
        subprocess.run([command, "restore"], check=True, env=environment)
        assert (checkout / "target/release/deps/libone.rlib").exists() == is_taken


def test_what_installs_all_else_is_installed_by_its_hash(tmp_path: Path) -> None:
    root, stubs = tmp_path / "checkout", tmp_path / "bin"
    (root / "scripts").mkdir(parents=True)
    for file in ("scripts/setup.sh", "scripts/uv.txt", "Cargo.toml"):
        shutil.copy(ROOT / file, root / file)
    _stub(stubs, "dpkg-query", "echo ok installed")
    _stub(stubs, "cargo", "echo cargo 9.9.9")
    (root / ".venv").mkdir()
    _stub(root / ".venv/bin", "python", f'[ "${{*: -1}}" = --help ] || echo "$*" >>{tmp_path}/installed')
    environment = {**os.environ, "PATH": f"{stubs}:{os.environ['PATH']}"}
    half = root / ".venv/lib/python3.11/site-packages/uv-0.1.dist-info"  # of a call that was killed: pip would keep it
    half.mkdir(parents=True)
    subprocess.run([root / "scripts/setup.sh", "dist"], check=True, env=environment)
    assert not half.exists()
    (words,) = (tmp_path / "installed").read_text().splitlines()
    assert words.startswith("-m pip install ") and words.endswith(" --require-hashes -r scripts/uv.txt")
    (version,) = [line for line in (ROOT / "scripts/uv.txt").read_text().splitlines() if line.startswith("uv==")]
    _stub(root / ".venv/bin", "uv", f"echo uv {version.split()[0].removeprefix('uv==')}")
    subprocess.run([root / "scripts/setup.sh", "dist"], check=True, env=environment)
    assert len((tmp_path / "installed").read_text().splitlines()) == 1, "this version is here already"


@pytest.fixture
def fresh(tmp_path: Path) -> Path:
    """A checkout in which scripts/setup.sh has all that it would install, but .venv."""
    root, stubs = tmp_path / "fresh", tmp_path / "stubs"
    (root / "scripts").mkdir(parents=True)
    for file in ("scripts/setup.sh", "scripts/uv.txt", "Cargo.toml"):
        shutil.copy(ROOT / file, root / file)
    _stub(root / "scripts", "rust_deps.sh", "")
    _stub(stubs, "dpkg-query", "echo ok installed")
    _stub(stubs, "cargo", "echo cargo 9.9.9")
    return root


def _set_up(root: Path, *parts: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": f"{root.parent}/stubs:{os.environ['PATH']}"}
    command = [root / "scripts/setup.sh", *parts]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def _uv(root: Path, script: str = "") -> None:
    """Put the uv that is wanted into a checkout."""
    lines = (ROOT / "scripts/uv.txt").read_text().splitlines()
    version = next(line for line in lines if line.startswith("uv==")).split()[0].removeprefix("uv==")
    _stub(root / ".venv/bin", "uv", f'[ "$1" != --version ] || {{ echo uv {version}; exit; }}\n{script}')


@pytest.mark.parametrize("left", ["no pip", "no python"])
def test_an_environment_that_is_not_whole_is_made_anew(fresh: Path, left: str) -> None:
    """Of a call that was killed while it made it, or of a `make clean` that was."""
    if left == "no pip":
        _stub(fresh / ".venv/bin", "python", "echo No module named pip >&2; exit 1")
    else:
        _uv(fresh)
    pip = 'case "$*" in *--help) ;; *) touch installed;; esac'
    made = f"mkdir -p $4/bin; printf '#!/bin/bash\\n%s\\n' '{pip}' >$4/bin/python; chmod +x $4/bin/python"
    _stub(fresh.parent / "stubs", "python3", f'[ "$*" != "-m venv --clear .venv" ] || {{ {made}; }}')
    done = _set_up(fresh, "dist")
    assert (done.returncode, done.stderr) == (0, "")
    assert (fresh / "installed").exists()


def test_another_architecture_is_refused_before_anything_is_installed(fresh: Path) -> None:
    _stub(fresh.parent / "stubs", "uname", "echo aarch64")
    _stub(fresh.parent / "stubs", "dpkg-query", "exit 1")
    _stub(fresh.parent / "stubs", "apt-get", f"touch {fresh}/installed")
    done = _set_up(fresh, "virtual")
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "this machine is aarch64; brobust is built on x86-64" in done.stderr
    assert not (fresh / "installed").exists()


def test_packages_are_installed_again_where_a_call_was_killed_that_installed_them(fresh: Path) -> None:
    """uv looks only at their names."""
    _stub(fresh / ".venv/bin", "python", "")
    for name in ("brobust-host", "brobust-client"):
        (fresh / "target/release").mkdir(parents=True, exist_ok=True)
        (fresh / "target/release" / name).touch()
    words = []
    for script in ("kill -KILL $PPID", "", ""):
        _uv(fresh, f'echo "$*" >>calls; {script}')
        _set_up(fresh, "lint")
        words.append("--reinstall" in (fresh / "calls").read_text())
        (fresh / "calls").unlink()
    assert words == [False, True, False]


def test_a_program_that_runs_is_replaced_by_a_new_one(fresh: Path) -> None:
    """A running file cannot be written, and half of one must not run."""
    _uv(fresh)
    _stub(fresh / ".venv/bin", "python", "")
    for name in ("brobust-host", "brobust-client"):
        (fresh / "target/release").mkdir(parents=True, exist_ok=True)
        (fresh / "target/release" / name).write_text("new")
    (fresh / "python/brobust/bin").mkdir(parents=True)
    running = Path(shutil.copy("/bin/sleep", fresh / "python/brobust/bin/brobust-host"))
    with subprocess.Popen([running, "60"]) as process:
        done = _set_up(fresh, "lint")
        process.kill()
    assert done.returncode == 0, done.stderr
    assert [file.name for file in running.parent.iterdir()] == ["brobust-host"] and running.read_text() == "new"


@pytest.mark.root
@pytest.mark.parametrize("process", ["its own", "of one that was killed"])
def test_services_may_start_again_after_a_setup_that_was_killed(tmp_path: Path, process: str) -> None:
    stubs, policy = tmp_path / "bin", "/usr/sbin/policy-rc.d"
    _stub(stubs, "dpkg-query", "echo ok installed")
    _stub(stubs, "cargo", "echo cargo 9.9.9")
    (tmp_path / "setup.sh").write_text("read -r end")
    script = f"""
    mount -t tmpfs none /usr/sbin
    printf '#!/bin/sh\n# of brobust'"'"'s scripts/setup.sh, process %s\nexit 101\n' PROCESS >{policy}
    scripts/setup.sh dist
    ls /usr/sbin
    """
    begun = ["bash", tmp_path / "setup.sh"]
    with subprocess.Popen(begun, stdin=subprocess.PIPE) as living:
        number = living.pid if process == "its own" else 4_194_305  # which Linux gives to nobody
        done = subprocess.run(
            ["unshare", "--mount", "sh", "-c", script.replace("PROCESS", str(number))], cwd=ROOT, capture_output=True,
            text=True, check=False, env={**os.environ, "PATH": f"{stubs}:{os.environ['PATH']}"},
        )  # fmt: skip
        living.kill()
    assert done.stdout == ("policy-rc.d\n" if process == "its own" else ""), done


@pytest.mark.parametrize("is_linked", [False, True])
def test_a_killed_clean_leaves_nothing_that_looks_whole_and_what_is_another_checkouts(
    tmp_path: Path, is_linked: bool
) -> None:
    checkout, there = tmp_path / "checkout", tmp_path / "other"
    checkout.mkdir()
    shutil.copy(ROOT / "Makefile", checkout)
    marks = [there / name for name in ("target/aarch64/is-complete", ".venv/bin/python")]
    for mark in marks:
        mark.parent.mkdir(parents=True)
        mark.touch()
    for name in ("target", ".venv"):
        (checkout / name).symlink_to(there / name) if is_linked else (there / name).rename(checkout / name)
    _stub(tmp_path / "bin", "rm", f'[ "$1" = -rf ] && exit 1; {shutil.which("rm")} "$@"')
    environment = {**os.environ, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
    subprocess.run(["make", "clean"], cwd=checkout, check=False, capture_output=True, env=environment)
    assert [(checkout / mark.relative_to(there)).exists() for mark in marks] == [is_linked] * 2
