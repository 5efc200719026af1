"""The repair for kernel trees: what it makes of a BBR of each version, and what it leaves alone.

Skeletons stand for the kernels' files. They have no more of them than the semantic patches look for, and are programs:
what the repaired code does is run. Debian's own sources are taken where the cache has them.
"""

import io
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from brobust.backends.vm import VmBackend
from brobust.cli import kernel_patch
from brobust.errors import BadInput, BrobustError, MissingSupport
from brobust.kernel_patch import apply, compiling
from brobust.kernels import modules
from brobust.kernels import vm as vm_kernels
from conftest import BROBUST, Brobust, eventually
from in_vm import let_rest, rate

needs_spatch = pytest.mark.skipif(shutil.which("spatch") is None, reason="spatch (coccinelle) is not installed")

STARTUP, DRAIN, PROBE_BW, PROBE_RTT = range(4)
BDP, MSS, BW = 16, 1000, 1000  # packets, bytes, and a bandwidth in which gains are visible

SURROUNDINGS = """\
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

typedef unsigned int u32;
#define BBR_UNIT 256
#define __bpf_kfunc
%(version)s
enum bbr_mode { BBR_STARTUP, BBR_DRAIN, BBR_PROBE_BW, BBR_PROBE_RTT };

struct bbr { u32 mode, pacing_gain, cwnd_gain, try_fast_path; %(fields)s };
struct tcp_sock { u32 app_limited, write_seq, snd_nxt, mss_cache, in_flight, snd_cwnd; };
struct sock { struct tcp_sock tp; struct bbr ca; unsigned long pacing_rate, cwnd_at_rate; };
struct rate_sample { bool is_app_limited; u32 acked_sacked; };

#define tcp_sk(sk) (&(sk)->tp)
#define inet_csk_ca(sk) (&(sk)->ca)
#define tcp_packets_in_flight(tp) ((tp)->in_flight)

static u32 bbr_bw(const struct sock *sk)
{
	return 1000;
}

static u32 bbr_bdp(struct sock *sk, u32 bw, int gain)
{
	return 16 * gain / BBR_UNIT;
}

static void bbr_set_pacing_rate(struct sock *sk, u32 bw, int gain)
{
	sk->pacing_rate = (unsigned long)bw * gain;
}
"""

# The latest kernels' bbr_main() and the one before 6.10; google's second; google's third.
VERSION_1 = """
static const int bbr_high_gain = 739;

static void bbr_set_cwnd(struct sock *sk, const struct rate_sample *rs, u32 acked, u32 bw, int gain)
{
	sk->cwnd_at_rate = sk->pacing_rate;
}

%(signature)s
{
	struct bbr *bbr = inet_csk_ca(sk);
	u32 bw;

	bw = bbr_bw(sk);
	bbr_set_pacing_rate(sk, bw, bbr->pacing_gain);
	bbr_set_cwnd(sk, rs, rs->acked_sacked, bw, bbr->cwnd_gain);
}
"""
LATER_VERSION = """
static void bbr_set_cwnd(struct sock *sk, const struct rate_sample *rs, u32 acked, u32 bw, int gain, u32 cwnd)
{
	sk->cwnd_at_rate = sk->pacing_rate;
	sk->ca.try_fast_path = 1;
}

static void %(bound)s(struct sock *sk)
{
}

static bool bbr_fast(struct sock *sk)
{
	return false;
}

%(signature)s
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct bbr *bbr = inet_csk_ca(sk);
	u32 bw;

	if (bbr_fast(sk))
		goto out;

	bw = bbr_bw(sk);
	bbr_set_pacing_rate(sk, bw, bbr->pacing_gain);
	bbr_set_cwnd(sk, rs, rs->acked_sacked, bw, bbr->cwnd_gain, tp->snd_cwnd);
	%(bound)s(sk);

out:
	tp->snd_cwnd++;
}
"""
# Prints what an ACK did: the rate, the rate for which cwnd was computed, the gain in BBR's state, the fast path.
PROGRAM = """
int main(int argc, char **argv)
{
	struct sock sk = { .ca = { .mode = atoi(argv[1]), .pacing_gain = 256, .try_fast_path = 1, %(params)s } };
	struct rate_sample rs = { .is_app_limited = atoi(argv[3]), .acked_sacked = 2 };

	sk.tp.app_limited = atoi(argv[2]);
	sk.tp.mss_cache = 1000;
	sk.tp.snd_nxt = 4294967000u;
	sk.tp.write_seq = sk.tp.snd_nxt + atoi(argv[4]);
	sk.tp.in_flight = atoi(argv[5]);
	%(call)s;
	printf("%%lu %%lu %%u %%u\\n", sk.pacing_rate, sk.cwnd_at_rate, sk.ca.pacing_gain, sk.ca.try_fast_path);
	return 0;
}
"""
MAINS = {
    "1": "__bpf_kfunc static void bbr_main(struct sock *sk, u32 ack, int flag, const struct rate_sample *rs)",
    "1, before 6.10": "static void bbr_main(struct sock *sk, const struct rate_sample *rs)",
    "2": "void bbr2_main(struct sock *sk, const struct rate_sample *rs)",
    "3": "__bpf_kfunc static void bbr_main(struct sock *sk, u32 ack, int flag, const struct rate_sample *rs)",
}
GAINS = {"1": 739, "1, before 6.10": 739, "2": 739, "3": 710}
FILES = {"1": "tcp_bbr.c", "1, before 6.10": "tcp_bbr.c", "2": "tcp_bbr2.c", "3": "tcp_bbr.c"}


def skeleton(which: str) -> str:
    """Return the file of a BBR version, with only the parts that the semantic patches look at."""
    signature = MAINS[which]
    call = f"{'bbr2_main' if which == '2' else 'bbr_main'}(&sk, {'0, 0, ' if 'ack' in signature else ''}&rs)"
    if which.startswith("1"):
        fields, version, body, params = "u32 lt_use_bw;", "", VERSION_1, ""
    elif which == "2":
        fields, version, body = "struct { u32 high_gain; } params;", "", LATER_VERSION
        params = ".params.high_gain = 739"
    else:
        fields, body, params = "", LATER_VERSION, ""
        version = "#define BBR_VERSION 3\n#define bbr_param(sk, name) (bbr_ ## name)\n"
        version += "static const int bbr_startup_pacing_gain = 710;"
    words = {
        "fields": fields, "version": version, "signature": signature, "params": params, "call": call,
        "bound": f"bbr{'2' if which == '2' else ''}_bound_cwnd_for_inflight_model",
    }  # fmt: skip
    return (SURROUNDINGS + body + PROGRAM) % words


@pytest.fixture
def tree(tmp_path: Path) -> Callable[..., Path]:
    def make(*which: str) -> Path:
        root = tmp_path / "linux"
        (root / "net/ipv4").mkdir(parents=True)
        for one in which:
            (root / "net/ipv4" / FILES[one]).write_text(skeleton(one))
        return root

    return make


def _repair(tree: Path) -> list[apply.Change]:
    changes = apply.plan(tree)
    apply.write(tree, changes)
    return changes


@needs_spatch
@pytest.mark.parametrize("which", MAINS)
def test_the_repaired_code_paces_faster_on_a_deficit_and_only_then(tree: Callable[..., Path], which: str) -> None:
    root = tree(which)
    _repair(root)
    file, program = root / "net/ipv4" / FILES[which], root / "bbr"
    subprocess.run(["gcc", "-Wall", "-Wno-unused", "-Werror", "-o", program, file], check=True)

    def on_ack(mode: int = PROBE_BW, limited: int = 0, was_limited: int = 0, unsent: int = MSS,
               in_flight: int = BDP - 1) -> list[int]:  # fmt: skip
        argv = [program, *map(str, (mode, limited, was_limited, unsent, in_flight))]
        return [int(word) for word in subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()]

    own, raised = BW * 256, BW * GAINS[which]
    slow_path = 1 if which.startswith("1") else 0
    # cwnd is computed for BBR's own rate, and the gain in BBR's state does not change.
    assert on_ack() == [raised, own, 256, slow_path]
    assert on_ack(in_flight=0) == [raised, own, 256, slow_path]
    as_ever = [own, own, 256, 1]
    assert on_ack(in_flight=BDP) == as_ever
    assert on_ack(limited=1) == as_ever
    assert on_ack(was_limited=1) == as_ever
    assert on_ack(unsent=MSS - 1) == as_ever
    for mode in (STARTUP, DRAIN, PROBE_RTT):
        assert on_ack(mode=mode) == as_ever


@needs_spatch
@pytest.mark.parametrize("which", MAINS)
def test_the_patch_only_adds_and_a_second_time_adds_nothing(tree: Callable[..., Path], which: str) -> None:
    root = tree(which)
    (change,) = _repair(root)
    assert not change.repaired_already
    assert change.what == f"BBR version {which[0]}"
    assert change.count("-") == 0
    assert 25 <= change.count("+") <= 40, "small enough to post"
    code = [line for line in change.diff.splitlines() if line.startswith("+")]
    assert all(len(line.expandtabs(8)) <= 81 and line == line.rstrip() for line in code), change.diff
    (again,) = _repair(root)
    assert again.repaired_already


@needs_spatch
def test_a_tree_with_two_versions_gets_both(tree: Callable[..., Path], brobust: Brobust) -> None:
    root = tree("1, before 6.10", "2")
    said = brobust("kernel", "patch", str(root)).stdout
    assert "net/ipv4/tcp_bbr.c (BBR version 1): repaired\n" in said
    assert "net/ipv4/tcp_bbr2.c (BBR version 2): repaired\n" in said
    assert "is not configured" in said.splitlines()[-1]


@needs_spatch
def test_patch_says_what_it_changed_and_check_changes_nothing(tree: Callable[..., Path], brobust: Brobust) -> None:
    root = tree("1")
    file = root / "net/ipv4/tcp_bbr.c"
    before = file.read_bytes()
    check = brobust("kernel", "patch", str(root), "--check")
    assert (check.returncode, check.stderr) == (0, "")
    assert check.stdout == "net/ipv4/tcp_bbr.c (BBR version 1): the repair applies, 30 lines added, 0 removed\n"
    assert file.read_bytes() == before

    done = brobust("kernel", "patch", str(root))
    assert done.returncode == 0, done.stderr
    assert " net/ipv4/tcp_bbr.c | 30 ++++++++++++++++++++++++++++++\n" in done.stdout
    assert "2.887 times the bandwidth" in done.stdout
    assert "not compiled: " in done.stdout
    assert "bbr_has_inflight_deficit" in file.read_text()
    assert [path.name for path in file.parent.iterdir()] == ["tcp_bbr.c"]
    for arguments in ([], ["--check"]):
        again = brobust("kernel", "patch", str(root), *arguments)
        assert (again.returncode, again.stdout) == (
            0, "net/ipv4/tcp_bbr.c (BBR version 1): already repaired, nothing to do\n",
        )  # fmt: skip


@needs_spatch
def test_the_diff_is_one_that_patch_takes(tree: Callable[..., Path], brobust: Brobust) -> None:
    root = tree("3")
    file = root / "net/ipv4/tcp_bbr.c"
    before = file.read_bytes()
    diff = brobust("kernel", "patch", str(root), "--diff")
    assert diff.returncode == 0, diff.stderr
    assert file.read_bytes() == before
    subprocess.run(["patch", "-p1", "-s"], input=diff.stdout, text=True, cwd=root, check=True)
    assert apply.plan(root)[0].repaired_already


def test_a_terminal_does_not_act_on_what_a_strangers_tree_has(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    change = apply.Change("net/ipv4/tcp_bbr.c", "BBR", (), "int a;\n", "\tint a;\x1b[2J \udcff\u202e\n")
    shown = {True: b"+\tint a;\\x1b[2J \\udcff\\u202e", False: b"+\tint a;\x1b[2J \xff\xe2\x80\xae"}
    for is_terminal, line in shown.items():
        content = io.BytesIO()
        out = io.TextIOWrapper(content)
        monkeypatch.setattr(out, "isatty", lambda is_terminal=is_terminal: is_terminal, raising=False)
        monkeypatch.setattr(sys, "stdout", out)
        kernel_patch._show(tmp_path, [change], False, [], False)
        assert content.getvalue().splitlines()[-1] == line


@needs_spatch
@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_the_patch_to_post_is_one_that_git_takes(tree: Callable[..., Path], brobust: Brobust) -> None:
    root = tree("1", "2")
    git = ["git", "-c", "user.name=Ångström", "-c", "user.email=a@example.org"]
    named = {**os.environ, "GIT_AUTHOR_NAME": "Ångström", "GIT_AUTHOR_EMAIL": "a@example.org"}
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "as it was"]):
        subprocess.run([*git, *words], cwd=root, check=True)
    done = brobust("kernel", "patch", str(root), "--format-patch", env=named)
    assert done.returncode == 0, done.stderr
    subprocess.run([*git, "am", "-q"], input=done.stdout, text=True, cwd=root, check=True, capture_output=True)
    log = subprocess.run([*git, "log", "-1", "--stat"], cwd=root, check=True, capture_output=True, text=True).stdout
    assert "tcp_bbr, tcp_bbr2: pace faster while less than one BDP is in flight" in log
    assert "Author: Ångström <a@example.org>" in log
    assert "2 files changed" in log
    assert [change.repaired_already for change in apply.plan(root)] == [True, True]


REFUSALS = [
    ("nothing there", [], "is not a directory"),
    ("no BBR", [], "has no net/ipv4/tcp_bbr.c"),
    ("another file", [], "is not a known version of BBR"),
    ("version 4", [], "BBR_VERSION is 4"),
    ("another bbr_main", [], "bbr_main() has to call bbr_set_pacing_rate() and then bbr_set_cwnd()"),
    ("half of it", [], "nothing calls it"),
    ("ok", ["--check", "--diff"], "exclude each other"),
    ("ok", ["--check", "--module", "x"], "--check changes and builds nothing"),
    ("ok", ["--guest", "x"], "--kdir debian-6.12"),
    ("ok", ["--diff", "--kdir", "debian-6.12"], "--kdir: nothing is compiled here"),
    ("ok", ["--repair", "all"], "give robust or kept"),
    ("ok", ["--repair", "steady"], "give robust or kept"),
    ("ok", ["--repair", "kept", "--module", "x"], "changes the kernel itself"),
    ("ok", ["--kdir", "/tmp"], "is not a prepared kernel tree"),
    ("ok", ["--module", "x"], "is not configured"),
]


@needs_spatch
@pytest.mark.parametrize(("case", "arguments", "words"), REFUSALS)
def test_a_refusal_is_one_line_and_changes_nothing(
    tree: Callable[..., Path], brobust: Brobust, case: str, arguments: list[str], words: str
) -> None:
    root = tree() if case == "no BBR" else tree("1")
    file = root / "net/ipv4/tcp_bbr.c"
    if case == "nothing there":
        root = root / "nothing"
    elif case == "another file":
        file.write_text("int x;\n")
    elif case == "version 4":
        file.write_text("#define BBR_VERSION 4\n")
    elif case == "half of it":
        file.write_text(file.read_text() + "static bool bbr_has_inflight_deficit(struct sock *sk) { return 0; }\n")
    elif case == "another bbr_main":
        file.write_text(file.read_text().replace("bbr_set_cwnd(sk, rs, rs->acked", "bbr_set_window(sk, rs->acked"))
    before = file.read_bytes() if file.exists() else b""
    done = brobust("kernel", "patch", str(root), *arguments)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("brobust: ")
    assert words in line
    assert (file.read_bytes() if file.exists() else b"") == before


def test_without_coccinelle_it_says_what_to_install(
    tree: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tree("1")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingSupport, match="apt-get install coccinelle"):
        apply.plan(root)


@needs_spatch
def test_ctrl_c_leaves_the_tree_as_it_was(tree: Callable[..., Path], tmp_path: Path) -> None:
    """Ctrl-C arrives while Coccinelle runs; in this test Coccinelle sleeps."""
    root = tree("1")
    before = {path: path.read_bytes() for path in root.rglob("*.c")}
    slow = tmp_path / "bin"
    slow.mkdir()
    (slow / "spatch").write_text("#!/bin/sh\ntouch started\nexec sleep 100\n")
    (slow / "spatch").chmod(0o755)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    surroundings = {**os.environ, "PATH": f"{slow}:{os.environ['PATH']}", "TMPDIR": str(scratch)}
    with subprocess.Popen([BROBUST, "kernel", "patch", root], env=surroundings, stderr=subprocess.PIPE) as run:
        assert eventually(lambda: any(scratch.glob("*/started")))
        run.send_signal(signal.SIGINT)
        assert run.stderr is not None
        assert b"Traceback" not in run.stderr.read()
    assert run.returncode == 130
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before
    assert not list(scratch.iterdir())


@needs_spatch
def test_a_failure_between_two_files_puts_the_first_back(
    tree: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tree("1", "2")
    changes = apply.plan(root)
    before = {path: path.read_bytes() for path in root.rglob("*.c")}
    replaced: list[str] = []
    replace = Path.replace

    def interrupted(self: Path, target: Path) -> Path:
        if len(replaced) == 1:
            replaced.append("interrupted")
            raise KeyboardInterrupt
        replaced.append(target.name)
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        apply.write(root, changes)
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before


def test_the_headers_of_the_same_version_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, headers = tmp_path / "linux", tmp_path / "modules/6.12.117+deb12-amd64/build"
    (root / "net/ipv4").mkdir(parents=True)
    for file in ("Makefile", "include/generated/autoconf.h", "scripts/mod/modpost"):
        (headers / file).parent.mkdir(parents=True, exist_ok=True)
        (headers / file).touch()
    monkeypatch.setattr(modules, "MODULES", tmp_path / "modules")
    (root / "Makefile").write_text("VERSION = 6\nPATCHLEVEL = 12\nSUBLEVEL = 11\nEXTRAVERSION =\n")
    assert "not configured" in str(compiling.headers_for(root, None))
    (root / "Makefile").write_text("VERSION = 6\nPATCHLEVEL = 12\nSUBLEVEL = 117\nEXTRAVERSION =\n")
    assert compiling.headers_for(root, None) == headers
    (root / ".config").touch()
    monkeypatch.setattr(modules, "MODULES", tmp_path / "none")
    assert "make modules_prepare" in str(compiling.headers_for(root, None))


def test_a_module_takes_the_place_of_the_kernels_own(tmp_path: Path) -> None:
    own = tmp_path / "lib/modules/6.4.0"
    (own / "kernel/net/ipv4").mkdir(parents=True)
    (own / "kernel/net/ipv4/tcp_bbr.ko.xz").write_text("own")
    for listing in ("modules.order", "modules.builtin"):
        (own / listing).write_text("")
    (own / "modules.dep").write_text("kernel/net/ipv4/tcp_bbr.ko.xz:\n")
    image, module = tmp_path / "bzImage", tmp_path / "tcp_bbr.ko"
    image.touch()
    shutil.copy(shutil.which("true") or "/bin/true", module)  # depmod accepts only an ELF file
    kernel = vm_kernels.with_modules(vm_kernels.find(f"{image}:{own}"), [module], tmp_path / "guest")
    assert kernel.release == "6.4.0"
    assert [file.name for file in kernel.modules.rglob("*bbr*")] == ["tcp_bbr.ko"]
    assert (own / "kernel/net/ipv4/tcp_bbr.ko.xz").read_text() == "own"
    with pytest.raises(BadInput, match="already exists"):
        vm_kernels.with_modules(kernel, [module], tmp_path / "guest")
    more = vm_kernels.with_modules(kernel, [module.rename(tmp_path / "brb_own.ko")], tmp_path / "other")
    assert more.control_modules() == {"bbr": "tcp_bbr", "brb_own": "brb_own"}


@needs_spatch
@pytest.mark.compiles
@pytest.mark.parametrize("series", ["6.1", "6.12"])
def test_debians_own_source_takes_it_and_compiles(
    series: str, linux_source: Callable[[str], Path], brobust: Brobust
) -> None:
    tree = linux_source(series)
    said = brobust("kernel", "patch", str(tree), "--check").stdout
    assert said == "net/ipv4/tcp_bbr.c (BBR version 1): the repair applies, 30 lines added, 0 removed\n"
    if not list((vm_kernels.cache_directory() / "headers").glob(f"{series}.*")):
        pytest.skip(
            f"applies; not compiled, for the cache has no headers of debian-{series}; `make setup` fetches them"
        )
    done = brobust("kernel", "patch", str(tree), "--kdir", f"debian-{series}")
    assert done.returncode == 0, done.stderr
    assert "net/ipv4/tcp_bbr.c (BBR version 1): repaired\n" in done.stdout
    assert f"compiled tcp_bbr.o for Linux {series}." in done.stdout and done.stdout.endswith(", no warnings\n")


@pytest.mark.vm
@pytest.mark.timeout(300)
@needs_spatch
def test_a_guest_with_the_repaired_module_recovers(
    linux_source: Callable[[str], Path], tmp_path: Path, brobust: Brobust, testbed: VmBackend
) -> None:
    """Compare with what decides as the kernel's own BBR (test_vm_cc.py), in the same guest, at half of a CPU."""
    let_rest(testbed)
    tree = linux_source("6.12")
    try:
        vm_kernels.headers("debian-6.12")
    except BrobustError as error:
        pytest.skip(str(error))
    done = brobust("kernel", "patch", str(tree), "--kdir", "debian-6.12", "--guest", str(tmp_path / "guest"))
    assert done.returncode == 0, done.stderr
    kernel = done.stdout.splitlines()[-1].partition(" --kernel debian-6.12,")[2]
    carried = {cc: rate(testbed, cc, 0.5, kernel=kernel) for cc in ("brb_bbr1", "bbr")}
    assert carried["bbr"] >= 1.5 * carried["brb_bbr1"], carried
