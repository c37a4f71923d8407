"""The listed attack tests exist, and SECURITY.md names them all."""

from pathlib import Path

from tests.attack import ATTACKS

_TESTS = Path(__file__).parent


def test_every_file_listed_exists() -> None:
    assert sorted(name for name in ATTACKS if not (_TESTS / name).is_file()) == []


def test_the_security_page_names_every_room_of_them() -> None:
    page = (_TESTS.parent / "SECURITY.md").read_text()
    rooms = {name.partition("/")[0] for name in ATTACKS}
    assert sorted(room for room in rooms if f"tests/{room}" not in page) == []
