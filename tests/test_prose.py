"""The prose check of `make lint` finds each habit, in all text for readers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import prose

EXAMPLES = {
    "clause for a noun (what is)": "It depends on what is in the log.",
    "clause for a noun (where there is)": "It is 0 where there is nothing.",
    "clause for a noun (those that)": "Only those that fit are read.",
    "clause for a noun (one that)": "It is a file, and not one that grows.",
    "clause for a noun (whatever)": "It takes whatever comes.",
    "is none, is no": "It is no file.",
    "behind (write: after)": "The bytes behind it are lost.",
    "tell (write: report, print)": "It tells the offset.",
    "verbs of a court (believe, say of, hold against)": "The index is not believed.",
    "is to be": "The file is to be deleted.",
    "afterthought after a comma": "It is deleted, too.",
    "alone, alike at the end": "The files are alike.",
}


def test_each_habit_has_an_example() -> None:
    assert EXAMPLES.keys() == prose.HABITS.keys()


@pytest.mark.parametrize("habit", EXAMPLES)
@pytest.mark.parametrize("form", ["page.md", "comment.py", "docstring.py", "message.py"])
def test_each_habit_is_found_at_its_line(habit: str, form: str, tmp_path: Path) -> None:
    first, *rest = EXAMPLES[habit].split(" ")
    lines = {
        "page.md": "# A page\n\n{}\n{}\n",
        "comment.py": "x = 1\n\n# {}\n# {}\n",
        "docstring.py": 'def f():\n    """Return.\n    {}\n    {}\n    """\n',
        "message.py": '\n\nx = "{} {}"\n',
    }
    path = tmp_path / form
    path.write_text(lines[form].format(first, " ".join(rest)))
    _, habits, phrases = prose.read([path])
    assert [(hit.line, hit.habit) for hit in habits] in ([(3, habit)], [(4, habit)])
    assert phrases == []


@pytest.mark.parametrize("phrase", prose.PHRASES)
def test_each_phrase_is_found_across_lines(phrase: str, tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text("It is so: " + phrase.replace(" ", "\n", 1) + ".\n")
    _, _, phrases = prose.read([path])
    assert f"{phrase} (write: {prose.PHRASES[phrase]})" in {hit.habit for hit in phrases}


def test_code_blocks_names_and_bytes_are_not_read(tmp_path: Path) -> None:
    page, module = tmp_path / "page.md", tmp_path / "module.py"
    page.write_text("```\nwhoever\n```\n")
    module.write_text("whoever = b'is whoever'\nx = 'whoever'\n")
    assert prose.read([page, module])[1:] == ([], [])


def test_the_check_fails_above_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "page.md").write_text("Whoever reads this. " + "word " * 497)
    monkeypatch.setattr(prose, "ROOT", tmp_path)
    monkeypatch.setattr(prose, "LIMITS", {("page.md",): 2.0})
    assert prose.main([]) == 0
    monkeypatch.setattr(prose, "LIMITS", {("page.md",): 1.9})
    assert prose.main([]) == 1
    assert "page.md:1: clause for a noun (whatever): Whoever" in capsys.readouterr().out
