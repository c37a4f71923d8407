"""What users can name does not change unnoticed: names, signatures, options, exit codes, findings, metrics."""

from difflib import unified_diff
from pathlib import Path

from tests.public_surface import surface

PAGE = Path(__file__).with_name("public_surface.txt")


def test_the_public_surface_is_the_one_of_the_page() -> None:
    written = PAGE.read_text(encoding="utf-8").splitlines()
    changed = list(
        unified_diff(written, surface(), "tests/public_surface.txt", "now", "", "", 0, "")
    )
    hint = "if this is meant: python -m tests.public_surface > tests/public_surface.txt"
    assert not changed, "\n".join([*changed, hint])
