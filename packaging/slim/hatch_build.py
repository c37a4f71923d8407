"""Fill in the distribution `reput-slim` from the project's own pyproject.toml and sources."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

ROOT = Path(__file__).resolve().parents[2]
LEFT_OUT = ("numba", "pyarrow")
EXTRAS = ("serve", "testing")
_SAME = (
    "authors",
    "classifiers",
    "description",
    "keywords",
    "license",
    "requires-python",
    "scripts",
)
_README = """# reput-slim

reput without numba and pyarrow: a RocketMQ broker and name server for tests, a quarter of the size.

    pip install 'reput-slim[serve]'

The code is the same. Rebuilds and checks run as plain Python, a hundred times more slowly. Exports, look-ups and URLs
need pyarrow. Install `reput` for those, in another environment than `reput-slim`: both own the same files.
"""


class Metadata(MetadataHookInterface):
    """The metadata of `reput`, with fewer dependencies."""

    def update(self, metadata: dict[str, Any]) -> None:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        source = (ROOT / "src" / "reput" / "__init__.py").read_text()
        found = re.search(r'^__version__ = "(.+)"$', source, re.MULTILINE)
        if found is None:
            raise ValueError("src/reput/__init__.py: no __version__")
        metadata |= {name: project[name] for name in _SAME}
        metadata["version"] = found[1]
        metadata["readme"] = {"content-type": "text/markdown", "text": _README}
        metadata["dependencies"] = [
            each for each in project["dependencies"] if not each.startswith(LEFT_OUT)
        ]
        extras = project["optional-dependencies"]
        metadata["optional-dependencies"] = {name: extras[name] for name in EXTRAS}


class Build(BuildHookInterface):
    """The hook that adds the sources, without compiled kernels."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        source = ROOT / "src"
        for path in sorted(source.rglob("*")):
            parts = path.relative_to(source).parts
            is_made = "__pycache__" in parts or "compiled" in parts
            if path.is_file() and not is_made:
                build_data["force_include"][str(path)] = "/".join(parts)
