"""The option `brobust --version`: what this brobust is, and what it brings."""

from __future__ import annotations

from collections.abc import Iterator

import brobust
from brobust.versions import SCHEMA_VERSION


def lines() -> Iterator[str]:
    """Yield the version of brobust, the virtual kernels that are here, the schema of datasets, and our controls."""
    from brobust import _core
    from brobust.kernels import virtual

    yield f"brobust {brobust.__version__}"
    kernels = [f"{kernel.name} (Linux {kernel.release})" for kernel in virtual.available()]
    yield f"virtual kernels: {', '.join(kernels) or 'none'}"
    yield f"dataset schema: {SCHEMA_VERSION}"
    yield f"BPF controls: {', '.join(name for name, _ in _core.controls())}"
