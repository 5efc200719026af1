"""The versions of what brobust writes. This file imports nothing, so that `brobust --version` is quick."""

from __future__ import annotations

SCHEMA_VERSION = 6
"""The columns and files of a dataset."""
