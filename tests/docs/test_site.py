"""The site's pages: each is in the navigation, and every link leads to a page and a heading. `make docs` builds it."""

import re
from pathlib import Path

import pytest

from tests.docs.pages import CHECKOUT

DOCS = CHECKOUT / "docs"
PAGES = sorted(DOCS.glob("**/*.md"))
ROOT_PAGES = [CHECKOUT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]
_FENCE = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s:#]*)(?:#([^)\s]+))?\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def headings(page: Path) -> set[str]:
    """The anchors of a page, as GitHub and mkdocs make them."""
    found = set()
    for title in _HEADING.findall(_FENCE.sub("", page.read_text(encoding="utf-8"))):
        words = re.sub(r"[^\w\s-]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).lower())
        found.add(re.sub(r"[\s]+", "-", words.strip()))
    return found


@pytest.mark.every_case
def test_links_lead_to_pages_and_headings() -> None:
    wrong, seen = [], 0
    for page in [*PAGES, *ROOT_PAGES]:
        for target, anchor in _LINK.findall(_FENCE.sub("", page.read_text(encoding="utf-8"))):
            seen += 1
            there = page.parent / target if target else page
            if not there.exists() or (anchor and anchor not in headings(there)):
                wrong.append(f"{page.relative_to(CHECKOUT)}: {target}#{anchor}")
    assert (wrong, seen > 150) == ([], True)


def test_every_page_is_in_the_navigation() -> None:
    text = (CHECKOUT / "mkdocs.yml").read_text(encoding="utf-8")
    listed = set(re.findall(r"([\w/-]+\.md)$", text, re.MULTILINE))
    pages = {str(page.relative_to(DOCS)) for page in PAGES}
    assert pages - listed == set()
    generated = {page for page in listed - pages if not page.startswith(("reference/", "project/"))}
    assert generated == set()


def test_the_site_fetches_nothing() -> None:
    text = (CHECKOUT / "mkdocs.yml").read_text(encoding="utf-8")
    assert re.search(r"^  font: false$", text, re.MULTILINE)
    assert not re.search(r"^(extra_javascript|extra_css|repo_url)|https?:", text, re.MULTILINE)


@pytest.mark.parametrize(
    "page", ["how-to/lost-index.md", "complete-answers.md", "what-changes.md", "killed.md"]
)
@pytest.mark.parametrize("front", ["README.md", "docs/index.md"])
def test_the_four_questions_are_answered_one_link_from_both_front_pages(
    front: str, page: str
) -> None:
    text = (CHECKOUT / front).read_text(encoding="utf-8")
    assert f"]({page if front.startswith('docs/') else 'docs/' + page})" in text
