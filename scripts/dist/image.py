#!/usr/bin/env python3
"""Write a container image as an OCI archive, without a container engine: `image.py ROOT VERSION ARCHIVE` makes one
layer of the directory ROOT. The same files give the same bytes.

The format is the OCI image specification 1.1: oci-layout, index.json, and below blobs/sha256 the manifest, the
configuration and the layer, each named by its hash.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import sys
import tarfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

NOBODY = "65534:65534"
# Of ours and of what is linked in.
LICENCES = "BSD-3-Clause AND Apache-2.0 AND MIT AND LGPL-2.1-or-later AND LGPL-3.0-or-later AND Zlib"


def layer_of(root: Path, seconds: int) -> bytes:
    """Return a directory as a tar file that depends on names, contents and modes only."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for path in sorted(root.rglob("*")):
            entry = archive.gettarinfo(path, str(path.relative_to(root)))
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = ""
            entry.mtime = seconds
            if entry.isreg():
                with path.open("rb") as content:
                    archive.addfile(entry, content)
            else:
                archive.addfile(entry)
    return buffer.getvalue()


def image(root: Path, version: str, seconds: int) -> dict[str, bytes]:
    """Return the files of the archive by name."""
    created = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    labels = {
        "org.opencontainers.image.title": "brobust-host",
        "org.opencontainers.image.description": "TCP senders that are short of CPU: watch, test and repair",
        "org.opencontainers.image.version": version,
        "org.opencontainers.image.created": created,
        "org.opencontainers.image.licenses": LICENCES,
        "org.opencontainers.image.authors": "the brobust authors",
    }
    files: dict[str, bytes] = {"oci-layout": _json({"imageLayoutVersion": "1.0.0"})}

    def blob(kind: str, content: bytes) -> dict[str, Any]:
        digest = hashlib.sha256(content).hexdigest()
        files[f"blobs/sha256/{digest}"] = content
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}", "size": len(content)}

    layer = layer_of(root, seconds)
    configuration = {
        "created": created,
        "architecture": "amd64",
        "os": "linux",
        "config": {
            "User": NOBODY,
            "Entrypoint": ["/usr/bin/brobust"],
            "Cmd": ["--help"],
            "Env": ["PATH=/usr/bin"],
            "WorkingDir": "/",
            "Labels": labels,
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
        "history": [{"created": created, "created_by": "scripts/dist/image.py"}],
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": blob("config.v1+json", _json(configuration)),
        "layers": [blob("layer.v1.tar+gzip", gzip.compress(layer, 9, mtime=0))],
        "annotations": labels,
    }
    described = blob("manifest.v1+json", _json(manifest))
    named = {**described, "annotations": {"org.opencontainers.image.ref.name": version}}
    files["index.json"] = _json(
        {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [named]}
    )
    return files


def write(archive: Path, files: dict[str, bytes], seconds: int) -> None:
    """Write an archive whose first file is the layout, as readers expect."""
    with tarfile.open(archive, "w", format=tarfile.GNU_FORMAT) as tar:
        for name in sorted(files, key=lambda name: (name.startswith("blobs/"), name != "oci-layout", name)):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime = len(files[name]), seconds
            tar.addfile(entry, io.BytesIO(files[name]))


def _json(document: dict[str, Any]) -> bytes:
    return json.dumps(document, indent=1, sort_keys=True).encode()


def main(root: str, version: str, archive: str) -> None:
    seconds = int(os.environ["SOURCE_DATE_EPOCH"])
    write(Path(archive), image(Path(root), version, seconds), seconds)


if __name__ == "__main__":
    main(*sys.argv[1:])
