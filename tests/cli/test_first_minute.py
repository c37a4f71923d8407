"""A newcomer's first commands: mistakes, mqadmin's commands, Tab, and `--diagnose`."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from reput.cli.main import WRONG_USE
from tests.cli.running import one_line, reput, reput_process
from tests.golden.sparse import copy_store
from tests.golden.stores import GoldenStore

Golden = Callable[[str], GoldenStore]


@pytest.mark.parametrize(
    ("typed", "advice"),
    [
        ("queryMsgByKey -t orders -k o-1", "use: reput query STORE --topic orders --key o-1"),
        ("queryMsgByKey -n ns:9876 -t orders -k o-1", "use: reput query STORE --topic orders --key o-1"),
        ("queryMsgByKey", "use: reput query STORE --topic TOPIC --key KEY"),
        ("queryMsgById --msgId=7F00", "use: reput show STORE 7F00"),
        ("queryMsgByUniqueKey -i AB -t t", "use: reput show STORE AB --topic t"),
        ("queryMsgByOffset -t orders -b a -i 1 -o 11", "use: reput show STORE orders/1/11"),
        ("printMsg -t orders", "use: reput tail STORE --topic orders"),
        ("sendMessage -t orders -p hi -c paid", "use: reput put STORE --topic orders --body hi --tag paid"),
        ("consumerProgress -g billing", "use: reput state lag STORE --group billing"),
        ("clusterList", "serve the store: reput serve STORE"),
    ],
)  # fmt: skip
def test_commands_of_mqadmin_are_translated(typed: str, advice: str) -> None:
    ran = reput(*typed.split())
    assert ran.code == 2
    assert advice in one_line(ran)


def test_every_translation_is_a_command_that_exists() -> None:
    from reput.cli.mqadmin import _COMMANDS

    for name, found in _COMMANDS.items():
        words = found.template.split()
        command = words[:2] if words[0] == "state" else words[:1]
        assert reput(*command, "--help").code == 0, name
        options = {
            word for word in " ".join([found.template, found.options]).split() if "--" in word
        }
        shown = reput(*command, "--help").out
        for option in options:
            assert option.partition(":")[2] or option in shown, (name, option)


def test_near_commands_are_suggested() -> None:
    assert "did you mean query?" in one_line(reput("qeury", "store"))
    assert one_line(reput("nothing")) == "reput: no command 'nothing' (see reput --help)"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (("lag",), "use: reput state lag"),
        (("compact",), "did you mean compact-table?"),
        (("stats", "--json"), "use --format json"),
        (("query", "--key", "k", "--format", "table"), "'text', 'json', 'jsonl', 'csv'"),
        (("export", "out", "--format", "delta"), "'text', 'json', 'jsonl', 'csv'"),
        (("check", "--runner", "local"), "'auto', 'serial', 'processes', 'spark'"),
    ],
)
def test_removed_spellings_lead_to_the_present_ones(
    golden: Golden, old: tuple[str, ...], new: str
) -> None:
    command, *options = old
    ran = reput(command, golden("orders").path, *options)
    assert ran.code == WRONG_USE
    assert new in one_line(ran)


def test_the_installation_is_described() -> None:
    ran = reput("--diagnose")
    assert ran.code == 0
    for name in (
        "reput",
        "Python",
        "base",
        "[spark]",
        "[buckets]",
        "kernels",
        "Java",
        "open files",
    ):
        assert any(line.lstrip("! ").startswith(name) for line in ran.lines), name


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_completes_commands_and_topics(golden: Golden, shell: str) -> None:
    assert "_REPUT_COMPLETE" in reput("completion", shell).out
    store = golden("orders").path
    if shell == "bash":
        for words, found in (
            ("reput que", ["query"]),
            (f"reput query {store} --topic pay", ["payments"]),
        ):
            typed = {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
            ran = reput_process(env={"_REPUT_COMPLETE": "bash_complete", **typed})
            assert [line.partition(",")[2] for line in ran.lines] == found


@pytest.mark.parametrize("key", ["order-1 order-2", "order-1,order-2", "order-1, order-2"])
def test_several_keys_in_one_are_noticed(golden: Golden, key: str) -> None:
    ran = reput("query", golden("orders").path, "--topic", "orders", "--key", key)
    assert ran.code == 1
    assert "if this is 2 keys, query them one by one (--key order-1)" in ran.err


def test_an_offset_beyond_the_queue_is_answered_with_its_range(golden: Golden) -> None:
    ran = reput("show", golden("orders").path, "orders/1/999999")
    assert ran.code == 1
    assert "queue orders/1 has offsets 0 to " in one_line(ran)


@pytest.mark.parametrize("inside", ["consumequeue", "index", "consumequeue/orders", "..", "../.."])
def test_a_path_beside_the_store_is_answered_with_its_place(
    golden: Golden, tmp_path: Path, inside: str
) -> None:
    store = copy_store(golden("orders").path, tmp_path / "data" / "broker" / "store")
    ran = reput("stats", os.path.normpath(store / inside))
    assert ran.code == 2
    assert one_line(ran).endswith(f"; the store is in {store}")


@pytest.mark.parametrize("command", ["query", "export"])
def test_a_window_that_ends_before_it_begins_is_refused(
    golden: Golden, tmp_path: Path, command: str
) -> None:
    asked = {"query": ("--key", "k"), "export": (tmp_path / "table",)}[command]
    window = ("--begin", "2026-10-19", "--end", "2026-10-17")
    ran = reput(command, golden("orders").path, *asked, *window)
    assert ran.code == 2
    assert "--begin 2026-10-19T00:00:00.000Z is after --end" in one_line(ran)


def test_help_explains_commands_and_topics() -> None:
    from reput.cli.help import _TOPICS

    for topic in _TOPICS:
        assert len(reput("help", topic).lines) > 2, topic
    assert "Usage: reput query" in reput("help", "query").out
    assert "Usage: reput state lag" in reput("help", "state", "lag").out
    assert reput("help").out == reput("--help").out
    assert "did you mean times?" in one_line(reput("help", "time"))
