"""The page on a package index: its links lead to the repository that builds the release."""

import re
import runpy
import tomllib
from pathlib import Path
from typing import Any

import pytest

CHECKOUT = Path(__file__).parents[1]
REPOSITORY = "https://git.example/team/reput"


@pytest.fixture(scope="module")
def hook() -> dict[str, Any]:
    return runpy.run_path(str(CHECKOUT / "packaging" / "metadata.py"))


def metadata(hook: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    hook["Metadata"](str(CHECKOUT), {}).update(found)
    return found


def test_a_release_has_absolute_links_and_images(
    hook: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_SERVER_URL", "https://git.example")
    monkeypatch.setenv("GITHUB_REPOSITORY", "team/reput")
    found = metadata(hook)
    assert found["urls"].keys() == {"Documentation", "Source", "Changelog", "Issues"}
    assert found["urls"]["Source"] == REPOSITORY
    targets = re.findall(r"\]\(([^)]+)\)", found["readme"]["text"])
    assert len(targets) > 15
    assert [one for one in targets if not one.startswith(("https://", "#"))] == []
    (image,) = re.findall(r"!\[[^]]*\]\(([^)]+)\)", found["readme"]["text"])
    assert re.fullmatch(rf"{REPOSITORY}/raw/v[^/]+/docs/images/demo\.svg\?sanitize=true", image)
    for url in targets:
        path = url.removeprefix(f"{REPOSITORY}/blob/").partition("/")[2].partition("#")[0]
        if url.startswith(f"{REPOSITORY}/blob/"):
            assert (CHECKOUT / path).exists(), url


def test_a_clone_keeps_the_relative_links(
    hook: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GITHUB_REPOSITORY", raising=False)
    found = metadata(hook)
    assert found["urls"] == {}
    assert found["readme"]["text"] == (CHECKOUT / "README.md").read_text(encoding="utf-8")


def test_the_project_names_its_authors_and_both_distributions_have_them() -> None:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    slim = tomllib.loads((CHECKOUT / "packaging" / "slim" / "pyproject.toml").read_text())[
        "project"
    ]
    assert project["authors"] == [{"name": "The reput authors"}]
    assert {"readme", "urls", "version"} == set(project["dynamic"])
    assert "authors" in slim["dynamic"]
