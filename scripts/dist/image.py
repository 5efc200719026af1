#!/usr/bin/env python3
"""Write a container image for several architectures as an OCI archive, without a container engine:

    image.py VERSION ARCHIVE amd64=ROOT arm64=ROOT      one layer of each directory ROOT
    image.py digest ARCHIVE                             print what a registry will call it

The same files give the same bytes. The format is the OCI image specification 1.1: oci-layout, index.json, and below
blobs/sha256 the index of architectures, and for each a manifest, a configuration and a layer, named by their hashes.
"""

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
LICENCES = "BSD-3-Clause AND Apache-2.0 AND BSD-2-Clause AND MIT AND LGPL-2.1-or-later AND LGPL-3.0-or-later AND Zlib"


def layer_of(root: Path, seconds: int) -> bytes:
    """Return a directory as a tar file that depends on names, contents and modes only."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for path in sorted(root.rglob("*")):
            entry = archive.gettarinfo(path, str(path.relative_to(root)))
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = ""
            entry.mtime = seconds
            entry.mode &= 0o777  # setgid is that of the directory where it was built
            if entry.isreg():
                with path.open("rb") as content:
                    archive.addfile(entry, content)
            else:
                archive.addfile(entry)
    return buffer.getvalue()


def image(roots: dict[str, Path], version: str, seconds: int) -> dict[str, bytes]:
    """Return the files of the archive by name; `roots` has a directory for each architecture, as Go calls it."""
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

    def manifest(architecture: str, root: Path) -> dict[str, Any]:
        layer = layer_of(root, seconds)
        configuration = {
            "created": created,
            "architecture": architecture,
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
        content = {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": blob("config.v1+json", _json(configuration)),
            "layers": [blob("layer.v1.tar+gzip", gzip.compress(layer, 9, mtime=0))],
            "annotations": labels,
        }
        platform = {"architecture": architecture, "os": "linux"}
        return {**blob("manifest.v1+json", _json(content)), "platform": platform}

    def index(manifests: list[dict[str, Any]], **more: Any) -> bytes:
        kind = "application/vnd.oci.image.index.v1+json"
        return _json({"schemaVersion": 2, "mediaType": kind, "manifests": manifests, **more})

    of_each = [manifest(architecture, root) for architecture, root in sorted(roots.items())]
    described = blob("index.v1+json", index(of_each, annotations=labels))
    named = {**described, "annotations": {"org.opencontainers.image.ref.name": version}}
    files["index.json"] = index([named])
    return files


def digest(archive: Path) -> str:
    """Return the digest of the index of architectures."""
    with tarfile.open(archive) as files:
        content = files.extractfile("index.json")
        assert content is not None
        [described] = json.load(content)["manifests"]
        return str(described["digest"])


def write(archive: Path, files: dict[str, bytes], seconds: int) -> None:
    """Write an archive whose first file is the layout, as readers expect."""
    with tarfile.open(archive, "w", format=tarfile.GNU_FORMAT) as tar:
        for name in sorted(files, key=lambda name: (name.startswith("blobs/"), name != "oci-layout", name)):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime = len(files[name]), seconds
            tar.addfile(entry, io.BytesIO(files[name]))


def _json(document: dict[str, Any]) -> bytes:
    return json.dumps(document, indent=1, sort_keys=True).encode()


def main(version: str, archive: str, *roots: str) -> None:
    if version == "digest":
        print(digest(Path(archive)))
        return
    seconds = int(os.environ["SOURCE_DATE_EPOCH"])
    of_each = {architecture: Path(root) for architecture, _, root in (one.partition("=") for one in roots)}
    write(Path(archive), image(of_each, version, seconds), seconds)


if __name__ == "__main__":
    main(*sys.argv[1:])
