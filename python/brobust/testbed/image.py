"""Make what guests boot: the kernel, uncompressed, and an initramfs with bash, iproute2, iperf3, kmod, our agent and
the kernel's modules for networking. A virtual kernel (testbed/uml.py) has everything built in.

Both guests boot the same image; the host later makes one the sender and one the path, through the agent. The archive is
not compressed, so unpacking is a copy. Under TCG that saves more time than a smaller file would.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from brobust import files
from brobust.host.cache import cache_directory, scratch_beside
from brobust.host.libraries import shared_libraries
from brobust.host.programs import find_program, host_program
from brobust.kernels import compression
from brobust.kernels.toolchain import check_room
from brobust.kernels.virtual import VirtualKernel
from brobust.kernels.vm import Kernel, module_files

INIT = Path(__file__).parent / "init.sh"
# Of each kind: an initramfs has 30 MB, a kernel 60. A kernel in a directory of its own, such as `brobust cc module
# --guest` makes, has images of its own, which would outlive it.
KEPT_IMAGES = 12
MAX_KERNEL = 200_000_000  # bytes of a bzImage; Debian's cloud kernels have 12 MB

# The programs that guests run, and the Debian package of each.
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
    # for the connection to the host
    "virtio_pci", "virtio_net", "virtio_console",
    # for the path
    "ifb", "sch_ingress", "act_mirred", "cls_matchall", "cls_u32", "sch_prio", "sch_tbf", "sch_netem",
    "sch_fq", "sch_fq_codel",
    # for samples of sockets
    "inet_diag", "tcp_diag",
]  # fmt: skip


def build(kernel: Kernel | VirtualKernel, more: Mapping[str, Path] | None = None) -> Path:
    """Return the initramfs for this kernel: from the cache if nothing in it has changed, else made now. `more` are
    programs beside the usual ones."""
    more = more or {}
    usual = {name: find_program(name, package) for name, package in PROGRAMS.items()}
    programs = {**usual, "brobust-host": host_program(), **more}
    sources = [INIT, *programs.values()]
    stamp = "|".join(f"{p}:{p.stat().st_size}:{p.stat().st_mtime_ns}" for p in sources)
    of_kernel, modules = (
        (kernel.fingerprint, kernel.modules) if isinstance(kernel, Kernel) else ("built in", Path("none"))
    )
    key = hashlib.sha256((stamp + of_kernel + ",".join(MODULES)).encode()).hexdigest()[:16]
    # The name depends on the modules' directory: a series may use kernels of one release with different modules, and
    # the image of one must not count as stale for the other.
    distinct = ",".join([str(modules), *sorted(more)])
    name = f"{kernel.release}-{hashlib.sha256(distinct.encode()).hexdigest()[:8]}"
    image = cache_directory() / "images" / f"{name}-{key}.cpio"
    with contextlib.suppress(FileNotFoundError):
        os.utime(image)  # it is used
        return image
    for stale in image.parent.glob(f"{name}-*.cpio"):
        stale.unlink(missing_ok=True)
    with scratch_beside(image) as scratch:
        try:
            _fill(scratch / "root", kernel, programs)
            _pack(scratch / "root", scratch / "image.cpio")
            (scratch / "image.cpio").rename(image)
            _keep_the_last_used(image.parent)
        except subprocess.CalledProcessError as error:
            check_room((error.stderr or b"").decode(errors="replace"), image.parent)
            raise
    return image


def kernel_image(kernel: Kernel) -> Path:
    """Return what QEMU boots of this kernel: the executable that its image holds, from the cache or uncompressed now,
    or the image itself if QEMU cannot start that."""
    executable = cache_directory() / "images" / f"{kernel.release}-{kernel.fingerprint}.vmlinux"
    with contextlib.suppress(FileNotFoundError):
        os.utime(executable)  # it is used
        return executable
    found = compression.executable(files.read(kernel.image, MAX_KERNEL))
    if found is None:
        return kernel.image
    files.make_directory(executable.parent)
    with files.writing_to(executable.parent):
        files.write(executable, found)
        _keep_the_last_used(executable.parent)
    return executable


def _keep_the_last_used(images: Path) -> None:
    for kind in ("*.cpio", "*.vmlinux"):
        with contextlib.suppress(FileNotFoundError):  # another command did the same
            last_used = sorted(images.glob(kind), key=lambda image: image.stat().st_mtime_ns, reverse=True)
            for image in last_used[KEPT_IMAGES:]:
                image.unlink()


def _fill(root: Path, kernel: Kernel | VirtualKernel, programs: dict[str, Path]) -> None:
    for directory in ("dev", "proc", "sys", "run", "tmp", "etc", "bin", "usr/sbin"):
        (root / directory).mkdir(parents=True)
    for name, file in programs.items():
        shutil.copy2(file, root / "bin" / name)
        for name_of_library, library in shared_libraries(file, {}).items():
            target = root / (name_of_library if "/" in name_of_library else str(library)).lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.exists():
                shutil.copy2(library.resolve(), target)
    for applet in ("modprobe", "depmod", "lsmod"):
        (root / "bin" / applet).symlink_to("kmod")
    (root / "usr/sbin/modprobe").symlink_to("/bin/kmod")  # the kernel calls it by this path
    for applet in ("mount", "mkdir", "cat", "ln", "sleep", "poweroff", "ls", "dmesg", "kill", "wc", "ping"):
        (root / "bin" / applet).symlink_to("busybox")
    (root / "etc/passwd").write_text("root:x:0:0:root:/:/bin/bash\n")
    shutil.copy2(INIT, root / "init")
    (root / "init").chmod(0o755)
    target = root / "lib/modules" / kernel.release
    target.mkdir(parents=True, exist_ok=True)
    if isinstance(kernel, Kernel):
        _copy_modules(target, kernel)
    else:
        (target / "modules.builtin").write_text("".join(f"kernel/{name}.ko\n" for name in MODULES))
    command = ["depmod", "-b", str(root), kernel.release]
    subprocess.run(command, executable=find_program("depmod", "kmod"), check=True, capture_output=True)


def _copy_modules(target: Path, kernel: Kernel) -> None:
    controls = list(kernel.control_modules().values())
    for file in module_files(kernel, MODULES + controls):
        plain = target / file.parent / (file.name.split(".ko")[0] + ".ko")
        plain.parent.mkdir(parents=True, exist_ok=True)
        plain.write_bytes(compression.uncompressed((kernel.modules / file).read_bytes()))
    for listing in ("modules.order", "modules.builtin", "modules.builtin.modinfo"):
        if (kernel.modules / listing).exists():
            shutil.copy2(kernel.modules / listing, target / listing)


def _pack(root: Path, image: Path) -> None:
    names = "\n".join([".", *sorted(str(p.relative_to(root)) for p in root.rglob("*"))])
    with image.open("wb") as out:
        subprocess.run(
            ["cpio", "-o", "-H", "newc", "--quiet", "-R", "0:0"], executable=find_program("cpio", "cpio"),
            cwd=root, input=names.encode(), stdout=out, stderr=subprocess.PIPE, check=True,
        )  # fmt: skip
