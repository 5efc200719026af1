"""Turn a Linux tree into a kernel for virtual time: apply our patches, copy our files, configure and compile it."""

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from brobust import files
from brobust.errors import BadInput, last_line
from brobust.kernels import our_files
from brobust.kernels import virtual as virtual_kernels
from brobust.kernels.sources import version_of
from brobust.kernels.toolchain import BuildFailed, Log, Progress, environment, log_of
from brobust.units import show_count

USUAL_OBJECTS = 750  # the number of files that are compiled for the default kernel, until a build has counted them

# kbuild writes the versions of these tools into .config, which is part of User-Mode Linux's executable (--showconfig).
# Our kernels do not use them, so the executable must not depend on which of them are installed.
MAKE = ("make", "ARCH=um", "LOCALVERSION=", "RUSTC=false", "BINDGEN=false", "PAHOLE=false")

# User-Mode Linux is compiled for modules that lie anywhere in the address space, so every call loads a 64-bit address
# first; and without the compiler's own memcpy(), so that copying eight bytes is a call. Our kernels have no modules,
# and lie below 2 GB.
AS_OTHER_ARCHITECTURES_COMPILE = ("-mcmodel=small", "-fbuiltin")


def bring_our_files(tree: Path, ours: Path, log: Log, progress: Progress) -> dict[str, Path]:
    """Apply the patches and copy the files of kernel/virtual, and those of kernel/real-time where they are wanted.

    Return the congestion controls that this adds, each with its source file in the tree.
    """
    every = our_files.below(ours / "patches").values()
    patches = [path for path in every if path.suffix == ".patch" and is_for(path.read_text(), tree)]
    progress.phase(f"applying patches: {len(patches)}")
    for patch in patches:
        _apply(patch, tree, log)
    return copy_files(ours / "tree", tree)


def is_for(patch: str, tree: Path) -> bool:
    """Return whether a patch is for this tree. Lines before its first hunk may say so: "Only where FILE has: TEXT" and
    "Left out where FILE has: TEXT"."""
    head = patch.partition("\n--- ")[0]
    conditions = re.findall(r"^(Only|Left out) where (\S+) has: (.+)$", head, re.MULTILINE)
    return all(has(tree / file, text) == (kind == "Only") for kind, file, text in conditions)


def has(file: Path, text: str) -> bool:
    return file.is_file() and text in _text(file)


def _text(file: Path) -> str:
    return files.read(file, files.MAX_TEXT).decode(errors="replace")


def _apply(patch: Path, tree: Path, log: Log) -> None:
    """Apply a patch, or refuse the tree if the patch does not apply. A dry run comes first, so that it applies wholly
    or not at all."""
    command = ["patch", "-p1", "--batch", "--forward", "--no-backup-if-mismatch", "--reject-file=-", "-i", str(patch)]
    trial = subprocess.run(
        [*command, "--dry-run"], cwd=tree, capture_output=True, text=True, check=False, env=environment()
    )
    log.write(f"{patch.name}:\n{trial.stdout}{trial.stderr}")
    if trial.returncode != 0:
        raise BadInput(
            f"kernel: {_place_of(patch)} does not apply to Linux {version_of(tree)}: "
            f"{misfits(trial.stdout + trial.stderr)}; adapt the patch or give another tree"
        )
    subprocess.run(command, cwd=tree, capture_output=True, check=True, env=environment())


def _place_of(patch: Path) -> str:
    if patch.name.startswith(our_files.KEPT):
        return f"kernel/patches/kept/{patch.name.removeprefix(our_files.KEPT)}"
    return f"kernel/{'real-time' if patch.name.startswith('real-time-') else 'virtual'}/patches/{patch.name}"


def misfits(output: str) -> str:
    """Return the files and lines at which a patch does not apply, from the output of patch(1)."""
    file, found = "", []
    for line in output.splitlines():
        if match := re.match(r"(?:checking|patching) file '?([^']+)'?$", line):
            file = match[1]
        elif match := re.match(r"Hunk #([0-9]+) FAILED at ([0-9]+)", line):
            found.append(f"{file} (hunk {match[1]} at line {match[2]})")
        elif match := re.match(r"\|\+\+\+ [^/]+/(\S+)", line):
            found.append(f"{match[1]} (not in this tree)")
        elif "previously applied" in line:
            found.append(f"{file} (already applied)" if file else "already applied")
    return ", ".join(found) or last_line(output).removeprefix("patch: **** ")


def copy_files(from_tree: Path, tree: Path) -> dict[str, Path]:
    """Copy the files that are missing in the tree or different there: make compiles whatever depends on a newer file.
    Return the congestion controls that they add, each with its source file in the tree."""
    controls = {}
    for name, path in our_files.below(from_tree).items():
        relative = Path(name)
        there = tree / relative
        if not there.exists() and (control := control_of(relative, path.read_text(errors="replace"))):
            controls[control] = relative
        if there.exists() and there.read_bytes() == path.read_bytes():
            continue
        there.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, there)
    return controls


def control_of(source: Path, text: str) -> str | None:
    """Return the congestion control that a file of ours defines, from the file's name; None if it defines none."""
    in_cc = source.parent.name in ("controls", "beside_kernel_bbr")
    if source.suffix == ".c" and (in_cc or "tcp_register_congestion_control" in text):
        return source.stem.removeprefix("tcp_")
    return None


def configure(tree: Path, ours: Path, hz: int, log: Log, progress: Progress) -> None:
    """Configure the tree: allnoconfig, and our configuration fragment on top."""
    progress.phase(f"configuring, HZ={hz}")
    fragment = "".join(path.read_text() for path in sorted(ours.glob("*config")))
    # What is added to an ordinary kernel may want an option another way: the last line counts.
    options = {option[2]: option[0] for option in re.finditer(r"^(# )?(CONFIG_\w+)[= ].*$", fragment, re.MULTILINE)}
    wanted = [line for option, line in options.items() if not re.match(r"CONFIG_HZ(_[0-9]+)?$", option)]
    wanted += own_controls(tree, fragment)
    make_tick_settable(tree / "arch/um/Kconfig", hz)
    # Trees that choose the tick by kernel/Kconfig.hz need CONFIG_HZ_…; others ignore it.
    lines = [*wanted, f"CONFIG_HZ={hz}", f"CONFIG_HZ_{hz}=y"]
    (tree.parent / "wanted.config").write_text("\n".join(lines) + "\n")
    if log.call([*MAKE, "-s", "KCONFIG_ALLCONFIG=../wanted.config", "allnoconfig"], cwd=tree) != 0:
        raise BuildFailed(f"kernel: make allnoconfig failed: {log.last_line()}", log.tail())
    config = (tree / ".config").read_text()
    if f"CONFIG_HZ={hz}\n" not in config:
        raise BadInput(f"--hz: this tree's arch/um/Kconfig does not allow HZ={hz}; give `config HZ` a prompt there")
    if missing := options_lacking(wanted, config):
        progress.note(f"Linux {version_of(tree)} does not know or allow: {', '.join(missing)}")


def own_controls(tree: Path, fragment: str) -> list[str]:
    """Return the options of the congestion controls that only this tree has, such as google's BBR version 2."""
    kconfig = tree / "net/ipv4/Kconfig"
    text = _text(kconfig) if kconfig.is_file() else ""
    options = re.findall(r"^config (TCP_CONG_[A-Z0-9_]+)$", text, re.MULTILINE)
    return [f"CONFIG_{option}=y" for option in options if f"CONFIG_{option}=" not in fragment]


_BBR_VERSION = re.compile(r"^#define\s+BBR_VERSION\s+([0-9]+)|\.bbr_version\s*=\s*(?:\(__u8\))?\s*([0-9]+)", re.M)
_BBR_NAME = re.compile(r'^\s*\.name\s*=\s*"([a-z0-9_]+)"', re.MULTILINE)


def bbr_versions(tree: Path) -> dict[str, int]:
    """Return the version of BBR that each of the tree's own BBR controls is, by its name. A file that does not say a
    version has version 1, as mainline's."""
    versions = {}
    for file in sorted((tree / "net/ipv4").glob("tcp_bbr*.c")):
        text = _text(file)
        if name := _BBR_NAME.search(text):
            found = _BBR_VERSION.search(text)
            versions[name[1]] = int(found[1] or found[2]) if found else 1
    return versions


def make_tick_settable(kconfig: Path, hz: int) -> None:
    """Make `hz` the default of CONFIG_HZ if the option has no prompt. arch/um has only one tick, without a prompt,
    unless a patch adds one."""
    text = kconfig.read_text()
    block = re.search(r"^config HZ\n(?:[ \t]+\S.*\n)+", text, re.MULTILINE)
    if block is not None and not re.search(r'^\s+(prompt\b|int\s+")', block[0], re.MULTILINE):
        with_tick = re.sub(r"(default )[0-9]+", rf"\g<1>{hz}", block[0])
        kconfig.write_text(text.replace(block[0], with_tick))


def options_lacking(wanted: Sequence[str], config: str) -> list[str]:
    """Return the lines of the fragment that are missing in the resulting .config."""
    have = set(config.splitlines())
    missing = [line for line in wanted if line.startswith("CONFIG_") and line not in have]
    unset = [line.split()[1] for line in wanted if re.match(r"# CONFIG_\w+ is not set", line)]
    return missing + [f"{option} off" for option in unset if any(line.startswith(f"{option}=") for line in have)]


def compile_kernel(tree: Path, name: str, log: Log, progress: Progress) -> int:
    jobs = len(os.sched_getaffinity(0))
    progress.phase(f"compiling with {show_count(jobs, 'job')}")
    total = max((one.objects for one in virtual_kernels.available() if one.name == name), default=USUAL_OBJECTS)
    done = 0
    # All names in the tree are relative. The map covers options that write whole paths nevertheless.
    flags = " ".join([f"-ffile-prefix-map={tree}=.", *AS_OTHER_ARCHITECTURES_COMPILE])
    command = [*MAKE, f"KCFLAGS={flags}", f"-j{jobs}", "linux"]
    with log.child(command, cwd=tree, pipe=True) as child:
        assert child.stdout is not None
        for line in child.stdout:
            log.write(line)
            if line.startswith("  CC "):
                done += 1
                progress.count(done, max(total, done))
    if child.returncode != 0:
        raise BuildFailed(f"kernel: {name} cannot be compiled: {log.error()}; whole log: {log_of(name)}", log.tail())
    return done
