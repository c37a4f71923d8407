"""Point the package's page on an index to the repository that builds the release.

The README's links and images are relative, so they work in every clone and fork. The page on a package index needs
absolute ones. A release is built in a workflow that names its repository; elsewhere the links stay relative.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_VERSION = re.compile(r'^__version__ = "(.+)"$', re.MULTILINE)
_LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^\]]*)\]\((?P<target>(?![a-z]+:|#)[^)]+)\)")


class Metadata(MetadataHookInterface):
    """Fill in `readme` and `urls`."""

    def update(self, metadata: dict[str, Any]) -> None:
        root = Path(self.root)
        readme = (root / "README.md").read_text(encoding="utf-8")
        found = _VERSION.search((root / "src" / "reput" / "__init__.py").read_text())
        if found is None:
            raise ValueError("src/reput/__init__.py: no __version__")
        repository = home()
        metadata["urls"] = {} if repository is None else urls(repository, found[1])
        text = readme if repository is None else absolute(readme, repository, found[1])
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


def home() -> str | None:
    """Return the URL of the repository that builds the release; None in a clone."""
    name = os.environ.get("GITHUB_REPOSITORY")
    return f"{os.environ.get('GITHUB_SERVER_URL', 'https://github.com')}/{name}" if name else None


def urls(repository: str, version: str) -> dict[str, str]:
    """Return the URLs of the project's pages."""
    return {
        "Documentation": f"{repository}/blob/v{version}/docs/index.md",
        "Source": repository,
        "Changelog": f"{repository}/blob/v{version}/CHANGELOG.md",
        "Issues": f"{repository}/issues",
    }


def absolute(readme: str, repository: str, version: str) -> str:
    """Return the README with absolute links to the files of a version, and to the bytes of its images."""

    def link(found: re.Match[str]) -> str:
        view = "raw" if found["image"] else "blob"
        url = f"{repository}/{view}/v{version}/{found['target']}"
        # Without this parameter, the bytes of an SVG come as text, which no page shows as an image.
        url += "?sanitize=true" if url.endswith(".svg") else ""
        return f"{found['image']}[{found['text']}]({url})"

    return _LINK.sub(link, readme)
