"""Every code block of every page: commands parse, Python imports only public names, and runs or says why not."""

from __future__ import annotations

import ast
import importlib
import io
import json
import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import NamedTuple

import click
import duckdb
import pytest
import yaml

import reput
from reput.cli.main import cli
from reput.wings.console.users import parse_users
from reput.wings.lakes.body_shape import BodyShape
from tests.docs.pages import CHECKOUT
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore

PAGES = sorted([*(CHECKOUT / "docs").rglob("*.md"), CHECKOUT / "README.md"])
_FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(
    r"^    (?:\$ )?((?:(?:uvx|sudo|nice|timeout) [^\n]*)?reput [^\n]*)$", re.MULTILINE
)
_PUBLIC = ("reput", "reput.errors", "reput.reports", "reput.spark", "reput.testing")
_ENDS = set("|&;<>")
_PREFIXES = {"uvx", "sudo", "nice", "-n", "19", "ionice", "-c", "3", "timeout", "60"}
SHELLS, PYTHONS = ("sh", "bash", "console"), ("python", "py")


class Block(NamedTuple):
    """A code block: its page, language and text."""

    page: str
    language: str
    text: str


def name_of(path: Path) -> str:
    return str(path.relative_to(CHECKOUT))


def blocks(path: Path) -> Iterator[Block]:
    """Yield the fenced blocks of a page."""
    for found in _FENCE.finditer(path.read_text(encoding="utf-8")):
        text = re.sub(rf"^{found[1]}", "", found[3], flags=re.MULTILINE)
        yield Block(name_of(path), found[2], text)


def commands(path: Path) -> Iterator[list[str]]:
    """Yield the arguments of each `reput` command of a page."""
    text = path.read_text(encoding="utf-8")
    lines = []
    for block in blocks(path):
        if block.language in SHELLS:
            prefix = "$ " if block.language == "console" else ""
            joined = block.text.replace("\\\n", " ")
            lines += [
                line.removeprefix(prefix) for line in joined.splitlines() if line.startswith(prefix)
            ]
    if path.name != "commands.md":
        lines += _INDENTED.findall(_FENCE.sub("", text))
    for words in map(words_of, whole_lines(lines)):
        while words:
            end = next((at for at, word in enumerate(words) if set(word) <= _ENDS), len(words))
            command, words = words[:end], words[end + 1 :]
            if "reput" in command and set(command[: command.index("reput")]) <= _PREFIXES:
                yield command[command.index("reput") + 1 :]


def words_of(line: str) -> list[str]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    return list(lexer)


def whole_lines(lines: list[str]) -> Iterator[str]:
    """Join lines within quotes."""
    waiting = ""
    for line in lines:
        waiting = f"{waiting}\n{line}" if waiting else line
        try:
            words_of(waiting)
        except ValueError:
            continue
        yield waiting
        waiting = ""
    assert not waiting, waiting


def fault_of(words: list[str]) -> str | None:
    """Return the error of parsing a command; None if it parses. The command does not run, and reads no file."""
    if words and words[0].startswith("-"):
        words = [*words, "query", "s", "--key", "k"] if words[0] != "--diagnose" else ["help"]
    command: click.Command = cli
    context = click.Context(cli, info_name="reput")
    while isinstance(command, click.Group):
        while words and words[0].startswith("-"):
            words = words[1:]
        if not words:
            return None
        try:
            _, found, words = command.resolve_command(context, words)
        except click.UsageError as error:
            return error.format_message()
        if found is None:
            return "no such command"
        command = found
    # A synopsis, such as [--limit N] or STORE..., is not a command to paste.
    if "--help" in words or any(set(word) & set("[]…") or word.endswith("...") for word in words):
        return None
    try:
        command.make_context("reput", list(words), parent=context)
    except click.FileError:
        return None
    except click.UsageError as error:
        text = error.format_message()
        return None if "No such file" in text else text
    return None


@pytest.mark.every_case
@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_every_command_of_a_page_parses(path: Path) -> None:
    faults = {shlex.join(words): fault for words in commands(path) if (fault := fault_of(words))}
    assert faults == {}


def test_commands_are_found_in_the_pages() -> None:
    found = [words for path in PAGES for words in commands(path)]
    assert len(found) > 150
    assert {"query", "rebuild", "check", "serve", "put"} <= {words[0] for words in found if words}


@pytest.mark.every_case
@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_python_of_a_page_imports_public_names_only(path: Path) -> None:
    wrong = []
    for block in blocks(path):
        if block.language not in PYTHONS:
            continue
        for node in ast.walk(ast.parse(block.text)):
            modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            modules += [one.name for one in node.names] if isinstance(node, ast.Import) else []
            for module in modules:
                if module.partition(".")[0] != "reput":
                    continue
                if not (module in _PUBLIC or module.startswith(("reput.spark.", "reput.testing."))):
                    wrong.append(module)
                elif isinstance(node, ast.ImportFrom):
                    known = importlib.import_module(module)
                    wrong += [
                        f"{module}.{one.name}" for one in node.names if not hasattr(known, one.name)
                    ]
    assert wrong == []


# The pages whose Python runs, here or in another test, and the reasons why the Python of other pages does not run.
RUN_HERE = (
    "archive", "check", "diff", "erase", "format/index-file", "how-to/embed-a-store", "repair", "stats", "trace",
)  # fmt: skip
RUN_ELSEWHERE = {
    "README": "test_readme", "tour": "test_readme", "python": "test_python_page",
    "how-to/duckdb": "test_how_to_pages", "how-to/polars": "test_how_to_pages",
    "how-to/pandas": "test_how_to_pages", "how-to/day-by-day": "test_how_to_pages",
    "writable-store": "test_writable_store_page",
}  # fmt: skip
NOT_RUN = {
    "how-to/export-to-iceberg": "reads the table at /lake that the page's command writes: tests/lakes does both",
    "how-to/spark-connect": "needs a Spark Connect server: `make test-connect` starts one",
    "how-to/spark-sql": "needs a Spark session: tests/spark queries views",
    "how-to/test-with-a-broker": "tests an application of the reader: tests/testing has the same steps",
    "how-to/yarn": "needs a YARN cluster",
    "object-storage": "needs a bucket: tests/remote opens stores in one",
    "export": "needs a Spark session: tests/spark exports on one",
    "look-up": "needs a Spark session: tests/spark looks up keys on one",
    "spark": "needs a Spark session: tests/spark starts one",
    "spark-stream": "needs a Spark session and a stream that does not end: tests/spark runs streams",
    "spark-table": "needs a Spark session: tests/spark reads tables on one",
}


def test_the_python_of_every_page_runs_or_the_list_says_why_not() -> None:
    pages = {
        name_of(path).removeprefix("docs/").removesuffix(".md")
        for path in PAGES
        if any(block.language in PYTHONS for block in blocks(path))
    }
    assert pages == {*RUN_HERE, *RUN_ELSEWHERE, *NOT_RUN}
    for test in RUN_ELSEWHERE.values():
        assert (CHECKOUT / "tests" / "docs" / f"{test}.py").exists()


@pytest.mark.parametrize("page", RUN_HERE)
def test_the_python_of_a_page_runs(
    golden: Callable[[str], GoldenStore], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page: str
) -> None:
    store = copy_store(golden("orders").path, tmp_path / "store")
    backup = copy_store(golden("orders").path, tmp_path / "backup")
    if page in ("check", "repair"):
        min((store / "index").iterdir()).unlink()
    places = {
        "/data/store": store, "/backup/store": backup, "/data/erased": tmp_path / "erased",
        "s3://bucket/broker-a": tmp_path / "archive",
    }  # fmt: skip
    monkeypatch.chdir(tmp_path)
    printed = io.StringIO()
    with redirect_stdout(printed):
        for block in blocks(CHECKOUT / "docs" / f"{page}.md"):
            if block.language in PYTHONS:
                text = block.text
                for named, place in places.items():
                    text = text.replace(named, str(place))
                exec(compile(text, page, "exec"), {"reput": reput})
    assert printed.getvalue()


# Pages with code blocks in other languages: the tests that check them, and the reasons why the others are not checked.
CHECKED_ELSEWHERE = {
    ("fleet", "toml"): "test_fleet_page",
    ("how-to/kubernetes", "yaml"): "test_code_blocks",
    ("how-to/monitor", "yaml"): "test_code_blocks",
    ("console", "toml"): "test_code_blocks",
    ("how-to/trino-athena", "sql"): "test_code_blocks",
    ("export-bodies", "json"): "test_code_blocks",
    ("findings", "json"): "test_code_blocks",
}
NOT_CHECKED = {
    ("how-to/trino-athena", "properties"): "needs Trino",
    ("how-to/test-with-a-broker", "java"): "needs Java, JUnit and RocketMQ's client",
    ("how-to/test-with-a-broker", "go"): "needs Go",
    (
        "how-to/test-with-a-broker",
        "js",
    ): "needs Node: `make test-clients` runs a client for Node against reput serve",
}
OUTPUT = ("text", "")


def blocks_of(page: str, language: str) -> list[str]:
    path = CHECKOUT / "docs" / f"{page}.md"
    return [block.text for block in blocks(path) if block.language == language]


def test_every_code_block_in_another_language_is_checked_or_the_list_says_why_not() -> None:
    others = {
        (block.page.removeprefix("docs/").removesuffix(".md"), block.language)
        for path in PAGES
        for block in blocks(path)
        if block.language not in (*SHELLS, *PYTHONS, *OUTPUT)
    }
    assert others == {*CHECKED_ELSEWHERE, *NOT_CHECKED}
    for test in CHECKED_ELSEWHERE.values():
        assert (CHECKOUT / "tests" / "docs" / f"{test}.py").exists()


def test_containers_of_a_page_run_commands_that_parse() -> None:
    found = [yaml.safe_load(text) for text in blocks_of("how-to/kubernetes", "yaml")]
    (container,) = found[0]["spec"]["template"]["spec"]["containers"]
    arguments = [container["args"], *(part["args"] for part in found[1:])]
    assert [words[0] for words in arguments] == ["rebuild", "query", "export"]
    assert {shlex.join(words): fault_of(words) for words in arguments if fault_of(words)} == {}


def test_rules_of_a_page_use_metrics_that_there_are_and_their_labels() -> None:
    scrape, rules = (yaml.safe_load(text) for text in blocks_of("how-to/monitor", "yaml"))
    assert scrape["scrape_configs"][0]["static_configs"][0]["targets"]
    surface = (CHECKOUT / "tests" / "public_surface.txt").read_text(encoding="utf-8")
    metrics = {
        name: set(labels.split())
        for name, labels in re.findall(r"^metric (\w+) \w+ \[(.*?)\]", surface, re.MULTILINE)
    }
    for rule in rules["groups"][0]["rules"]:
        names = re.findall(r"\breput_\w+", rule["expr"])
        labels = re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"])
        assert names
        assert all(set(labels) <= metrics[name] for name in names), rule["alert"]


def test_the_users_file_of_a_page_is_read() -> None:
    (text,) = blocks_of("console", "toml")
    users = parse_users(text.encode(), "users.toml")
    assert users.has_tokens
    assert users.proxy is not None
    assert set(users.proxy.groups) == {"support", "oncall"}


def test_the_sql_of_a_page_runs_on_an_exported_table(
    golden: Callable[[str], GoldenStore], tmp_path: Path
) -> None:
    reput.export(golden("orders").path, tmp_path / "table")
    with duckdb.connect() as connection:
        connection.execute(
            "ATTACH ':memory:' AS lake; CREATE SCHEMA lake.sales; CREATE SCHEMA sales"
        )
        for name in ("sales.messages", "lake.sales.messages"):
            connection.execute(
                f"CREATE TABLE {name} AS SELECT * FROM '{tmp_path}/table/**/*.parquet'"
            )
        statements = blocks_of("how-to/trino-athena", "sql")
        answers = [connection.execute(text).fetchall() for text in statements]
    assert len(answers) == 2
    assert len(answers[1]) > 0


def test_json_of_a_page_is_a_shape_and_a_finding(tmp_path: Path) -> None:
    (shape,) = blocks_of("export-bodies", "json")
    (tmp_path / "shape.json").write_text(shape)
    assert set(BodyShape.from_file(str(tmp_path / "shape.json")).type.names) == {
        "order", "total", "items", "at",
    }  # fmt: skip
    (text,) = blocks_of("findings", "json")
    finding = json.loads(text)
    kind = reput.reports.Kind(finding["kind"])
    assert (finding["severity"], finding["remedy"]) == (kind.severity, kind.remedy)
    example = reput.reports.Finding(kind, finding["file"], finding["detail"])
    assert list(finding) == list(example.as_json())


# What a page needs beside the base, which it must say before its first section.
NEEDS = {
    "spark": "reput[spark]", "spark-table": "reput[spark]", "spark-stream": "reput[spark]",
    "at-scale": "reput[spark]", "look-up": "reput[spark]", "how-to/standalone": "reput[spark]",
    "how-to/yarn": "reput[spark]", "how-to/spark-sql": "reput[spark]", "how-to/spark-connect": "reput[spark]",
    "console": "reput[serve]", "console-api": "reput[serve]", "export-bodies": "reput[avro]",
    "export-buckets": "reput[buckets]", "how-to/export-to-iceberg": "reput[iceberg]",
    "how-to/trino-athena": "reput[iceberg,buckets]", "how-to/test-with-a-broker": "reput-slim[serve]",
    "how-to/duckdb": "duckdb", "how-to/polars": "polars", "how-to/pandas": "pandas",
}  # fmt: skip


@pytest.mark.every_case
@pytest.mark.parametrize("page", NEEDS)
def test_a_page_names_the_extra_that_it_needs_first(page: str) -> None:
    text = (CHECKOUT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    assert re.search(
        rf"pip install [\'\"]?(?:reput )?{re.escape(NEEDS[page])}", text.partition("\n## ")[0]
    )
