"""The guests' initramfs: bash, iproute2, iperf3, kmod and our agent, with a kernel's modules for networking.

Both guests boot the same image; what a guest is (sender or path) it is told by its agent later. Packed
uncompressed: unpacking is then a copy, which under TCG saves more time than the smaller file would.
"""

from __future__ import annotations

import gzip
import hashlib
import lzma
import shutil
import subprocess
import tempfile
from pathlib import Path

from brobust.errors import MissingSupport
from brobust.host.cache import cache_directory
from brobust.host.programs import find_program, shared_libraries
from brobust.kernels.vm import Kernel, module_files

AGENT = Path(__file__).parent / "bin" / "brobust-guest"
INIT = Path(__file__).parent / "init.sh"

# What the guests run, and the Debian package that has it.
PROGRAMS = {
    "bash": "bash",
    "busybox": "busybox-static",
    "ip": "iproute2",
    "tc": "iproute2",
    "ss": "iproute2",
    "iperf3": "iperf3",
    "kmod": "kmod",
    "ethtool": "ethtool",
}
MODULES = [
    # how the guest reaches the host
    "virtio_pci", "virtio_net", "virtio_console",
    # the path
    "ifb", "sch_ingress", "act_mirred", "cls_matchall", "cls_u32", "sch_prio", "sch_tbf", "sch_netem",
    "sch_fq", "sch_fq_codel",
    # what is measured and how
    "inet_diag", "tcp_diag",
]  # fmt: skip


def build(kernel: Kernel) -> Path:
    """The initramfs for this kernel, from the cache if nothing that goes into it has changed."""
    programs = {name: find_program(name, package) for name, package in PROGRAMS.items()}
    sources = [AGENT, INIT, *programs.values()]
    if not AGENT.exists():
        raise MissingSupport(f"the guest program {AGENT} was not built; run `make setup`")
    stamp = "|".join(f"{p}:{p.stat().st_size}:{p.stat().st_mtime_ns}" for p in sources)
    key = hashlib.sha256((stamp + kernel.fingerprint + ",".join(MODULES)).encode()).hexdigest()[:16]
    # Kernels of one release with different modules may be in one series: neither's image is stale for the other.
    name = f"{kernel.release}-{hashlib.sha256(str(kernel.modules).encode()).hexdigest()[:8]}"
    image = cache_directory() / "images" / f"{name}-{key}.cpio"
    if image.exists():
        return image
    image.parent.mkdir(parents=True, exist_ok=True)
    for stale in image.parent.glob(f"{name}-*.cpio"):
        stale.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(dir=image.parent) as scratch:
        root = Path(scratch) / "root"
        _fill(root, kernel, programs)
        _pack(root, Path(scratch) / "image.cpio")
        (Path(scratch) / "image.cpio").rename(image)
    return image


def _fill(root: Path, kernel: Kernel, programs: dict[str, Path]) -> None:
    for directory in ("dev", "proc", "sys", "run", "tmp", "etc", "bin", "usr/sbin"):
        (root / directory).mkdir(parents=True)
    for name, file in {**programs, "brobust-guest": AGENT}.items():
        shutil.copy2(file, root / "bin" / name)
        for library in shared_libraries(file):
            target = root / library.relative_to("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.exists():
                shutil.copy2(library.resolve(), target)
    for applet in ("modprobe", "depmod", "lsmod"):
        (root / "bin" / applet).symlink_to("kmod")
    (root / "usr/sbin/modprobe").symlink_to("/bin/kmod")  # where the kernel looks for it
    for applet in ("mount", "mkdir", "cat", "ln", "sleep", "poweroff", "ls", "dmesg", "kill", "wc", "ping"):
        (root / "bin" / applet).symlink_to("busybox")
    (root / "etc/passwd").write_text("root:x:0:0:root:/:/bin/bash\n")
    shutil.copy2(INIT, root / "init")
    (root / "init").chmod(0o755)
    _copy_modules(root, kernel)


def _copy_modules(root: Path, kernel: Kernel) -> None:
    target = root / "lib/modules" / kernel.release
    target.mkdir(parents=True, exist_ok=True)
    controls = list(kernel.control_modules().values())
    for file in module_files(kernel, MODULES + controls):
        plain = target / file.parent / (file.name.split(".ko")[0] + ".ko")
        plain.parent.mkdir(parents=True, exist_ok=True)
        plain.write_bytes(_uncompressed(kernel.modules / file))
    for listing in ("modules.order", "modules.builtin", "modules.builtin.modinfo"):
        if (kernel.modules / listing).exists():
            shutil.copy2(kernel.modules / listing, target / listing)
    subprocess.run(["depmod", "-b", str(root), kernel.release], check=True, capture_output=True)


def _uncompressed(file: Path) -> bytes:
    if file.suffix == ".xz":
        return lzma.decompress(file.read_bytes())
    if file.suffix == ".gz":
        return gzip.decompress(file.read_bytes())
    if file.suffix == ".zst":  # the standard library has it from 3.14 on only
        return subprocess.run(["zstd", "-dcq", str(file)], check=True, capture_output=True).stdout
    return file.read_bytes()


def _pack(root: Path, image: Path) -> None:
    names = "\n".join([".", *sorted(str(p.relative_to(root)) for p in root.rglob("*"))])
    with image.open("wb") as out:
        subprocess.run(
            ["cpio", "-o", "-H", "newc", "--quiet", "-R", "0:0"],
            cwd=root, input=names.encode(), stdout=out, check=True,
        )  # fmt: skip
