"""The register of requests, its handlers, and its page agree."""

import re
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from reput.engine.stores import open_store
from reput.engine.writer.shared_store import SharedStore
from reput.wings.serve.broker.broker import Cluster, ServedBroker
from reput.wings.serve.remoting.commands import Command
from reput.wings.serve.remoting.handling import Answer, Peer, answers, codes_of, handlers_of
from reput.wings.serve.remoting.port import Port
from reput.wings.serve.remoting.requests import (
    OF_NAME_SERVER,
    AuditRule,
    BodyKind,
    RequestCode,
    needed_rights,
)
from reput.wings.serve.remoting.sending import Sending
from tests.golden.stores import GoldenStore
from tests.small import SMALL

PAGE = Path(__file__).parents[2] / "docs" / "request-codes.md"
SENT_BY_SERVERS = {
    RequestCode.CHECK_TRANSACTION_STATE, RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
    RequestCode.RESET_CONSUMER_CLIENT_OFFSET, RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
    RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
}  # fmt: skip


def answered(store: SharedStore) -> set[RequestCode]:
    """Return the requests that a port with this store has handlers for."""
    port = Port(Cluster())
    port.open(ServedBroker("broker-a", store))
    return {RequestCode(code) for code in port._handlers}


def documented(section: str) -> set[tuple[str, str]]:
    text = PAGE.read_text(encoding="utf-8").partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    return set(re.findall(r"\b(\d+) ([A-Z][A-Z_0-9]+)\b", text))


def listed(codes: set[RequestCode]) -> set[tuple[str, str]]:
    return {(str(int(code)), code.name) for code in codes}


def test_the_page_lists_the_requests_that_are_answered(
    golden: Callable[[str], GoldenStore], tmp_path: Path
) -> None:
    with closing(SharedStore(golden("orders").path)) as store:
        every = answered(store) - codes_of(Sending)
    with open_store(tmp_path / "store", mode="rw", config=SMALL) as store:
        with_sends = answered(store)
    assert every < with_sends
    assert documented("From every store") == listed(every)
    assert documented("With `--accept-sends`") == listed(with_sends - every)
    assert with_sends == {*RequestCode} - SENT_BY_SERVERS


def test_a_row_without_rights_needs_an_administrator() -> None:
    body_only = Command(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP)
    assert list(needed_rights(body_only)) == [(None, 0)]
    assert list(needed_rights(Command(RequestCode.CLONE_GROUP_OFFSET))) == [(None, 0)]
    assert list(needed_rights(Command(9_999))) == [(None, 0)]
    assert RequestCode.PUT_KV_CONFIG not in OF_NAME_SERVER
    assert list(needed_rights(Command(RequestCode.GET_ROUTEINFO_BY_TOPIC))) == []


def test_a_code_is_a_number_with_a_name_and_a_row() -> None:
    code = RequestCode(34)
    assert (code, code.name, code.value) == (34, "HEART_BEAT", 34)
    assert (code.body, code.audit) == (BodyKind.JSON, AuditRule.NEVER)


def test_the_methods_of_a_class_answer_the_requests_that_they_state() -> None:
    class Toy:
        @answers(RequestCode.GET_MAX_OFFSET, RequestCode.GET_MIN_OFFSET)
        def _offset(self, request: Command, peer: Peer) -> Answer:
            return request.answer(remark="an offset")

        def _helper(self, request: Command, peer: Peer) -> Answer:
            return None

    toy = Toy()
    assert codes_of(Toy) == {RequestCode.GET_MAX_OFFSET, RequestCode.GET_MIN_OFFSET}
    assert handlers_of(toy) == dict.fromkeys(codes_of(Toy), toy._offset)


@pytest.mark.parametrize("code", sorted(SENT_BY_SERVERS))
def test_only_administrators_may_send_what_servers_send(code: int) -> None:
    assert list(needed_rights(Command(code))) == [(None, 0)]
