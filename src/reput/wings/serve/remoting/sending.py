"""Answer requests that send messages, send them back, or end transactions.

Mirrors `SendMessageProcessor` and `EndTransactionProcessor` (tag rocketmq-all-4.9.3).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from reput.base import now_ms
from reput.engine.writer import Message, PutResult
from reput.errors import MessageRefusedError, ReputError, StoreError, UsageError
from reput.format.commit_log import SYS_FLAG_COMMIT, SYS_FLAG_ROLLBACK, MessageExt, encode
from reput.format.host import Host
from reput.format.java_string import decode_utf8
from reput.format.properties import (
    PRODUCER_GROUP,
    PUSH_REPLY_TIME,
    REPLY_TO_CLIENT,
    TIMER_OUT_MS,
    TIMER_TOPIC,
    UNIQ_KEY,
    decode_properties,
    encode_properties,
)
from reput.wings.serve.broker.broker import ServedBroker, Written
from reput.wings.serve.broker.groups import Client
from reput.wings.serve.broker.sending import (
    MOST_TIMER_MS,
    NoSuchTopicError,
    NotAllowedError,
    SendRefusedError,
    Sent,
    encoded,
    message_bytes,
    properties_of,
    sent_back,
)
from reput.wings.serve.broker.timers import RECALL_BODY, RecallHandle, recalling
from reput.wings.serve.broker.transactions import TransactionError, queue_of_prepared
from reput.wings.serve.remoting.commands import Command, FieldError, Refusal, ResponseCode, request
from reput.wings.serve.remoting.handling import (
    Answer,
    Handler,
    InThread,
    Later,
    Peer,
    answers,
    codes_of,
    failed,
    handlers_of,
)
from reput.wings.serve.remoting.requests import SENDS, RequestCode
from reput.wings.serve.remoting.rights import PUB, AccessError

_RETRY_LIMIT_VERSION = 121
"""The number that stands for version 3.4.9. From version 3.4.9 on, clients state how often a message may be retried."""
_MESSAGE_BYTES, _BATCH_BYTES = 256 << 10, 4 << 10
"""Maximum size in bytes of the body of a message, and of a batch, that the event loop itself stores.

A thread stores larger bodies: their checksums and copies take milliseconds, in which the event loop would answer no
other request.
"""
_REGION = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
_SHORT_NAMES = dict(
    zip(
        (
            "producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag",
            "bornTimestamp", "flag", "properties", "reconsumeTimes", "unitMode",
            "maxReconsumeTimes", "batch",
        ),
        "abcdefghijklm",
        strict=True,
    )
)  # fmt: skip
"""Names of the fields of SEND_MESSAGE, and the short names in SEND_MESSAGE_V2."""
_LONG_NAMES = {name: name for name in _SHORT_NAMES}
_VARYING = (
    "bornTimestamp",
    "properties",
)  # Fields that differ between messages. The other fields are mostly the same.
_REPEATED = tuple(name for name in _SHORT_NAMES if name not in _VARYING)
_REPEATED_SHORT = tuple(_SHORT_NAMES[name] for name in _REPEATED)
_MOST_CACHED, _MOST_CACHED_CHARACTERS = 1024, 512


class _AcceptedSend(NamedTuple):
    """A message to put, and its request. `topic` and `queue_id` are those in the request."""

    number: int
    request: Command
    message: Message
    waits: bool
    topic: str
    queue_id: int


class _Commits:
    """Answers that wait until their messages are durable. One sync serves all answers that wait when it begins."""

    def __init__(self, sync: Callable[[], None]) -> None:
        """Use `sync`, which makes all puts durable. It is called in a thread."""
        self._sync, self._is_syncing = sync, False
        self._waiting: list[tuple[Command, Command, Later]] = []

    def add(self, request: Command, answer: Command) -> Later:
        """Send the answer to a request after the next sync that begins after this call."""
        later = Later()
        self._waiting.append((request, answer, later))
        if not self._is_syncing:
            self._is_syncing = True
            loop = asyncio.get_running_loop()
            loop.call_soon(
                self._begin
            )  # Sync a little later, for all requests that arrived together.
        return later

    def _begin(self) -> None:
        batch, self._waiting = self._waiting, []
        running = asyncio.get_running_loop().run_in_executor(None, self._sync)
        running.add_done_callback(partial(self._done, batch))

    def _done(
        self, batch: list[tuple[Command, Command, Later]], running: asyncio.Future[None]
    ) -> None:
        self._is_syncing = bool(self._waiting)
        if self._is_syncing:
            self._begin()
        error = running.exception()
        for call, answer, later in batch:
            later.resolve(answer if error is None else _not_put(call, error))


class Sending:
    """Puts messages into one broker's store. With `is_synced`, each sender waits until its message is durable."""

    def __init__(self, broker: ServedBroker, written: Written, is_synced: bool = False) -> None:
        self._broker, self._written, self._is_synced = broker, written, is_synced
        self._cache: dict[tuple[object, ...], tuple[Sent, bool]] = {}
        self._commits = _Commits(lambda: written.store.flush())

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers by request code. They answer errors with the codes of refused sends."""
        return {code: self._guarded(handler) for code, handler in handlers_of(self).items()}

    def ask_producers(self, due: Sequence[MessageExt]) -> None:
        """Ask producers about messages that they have left undecided."""
        for message in due:
            with suppress(TransactionError):
                topic, queue_id = queue_of_prepared(message)
                group = message.properties.get(PRODUCER_GROUP, "")
                candidates = self._broker.groups.producers(group)
                # The request that asks for the outcome of a transaction contains the message, and any client can
                # register as a producer of the group. So ask only a client that may send to the message's topic.
                if producers := [producer for producer in candidates if producer.may_send(topic)]:
                    question = replace(message, topic=topic, queue_id=queue_id)
                    _ask(producers[message.queue_offset % len(producers)], message, question)

    def _guarded(self, handler: Handler) -> Handler:
        def handle(request: Command, peer: Peer) -> Answer:
            try:
                return handler(request, peer)
            except ReputError as error:
                return _refused(request, error)

        return handle

    def send_many(self, sends: Sequence[tuple[Command, Peer]]) -> list[Answer]:
        """Return the answers to sends that arrived together. Successive small messages are put in one call."""
        answers: list[Answer] = [None] * len(sends)
        run: list[_AcceptedSend] = []
        for number, (send, peer) in enumerate(sends):
            try:
                sent, is_batch = self._sent(send, peer.address)
                if is_batch:
                    # Put the earlier messages first, so that a queue keeps the order in which they were sent.
                    self._put_run(run, answers)
                    answers[number] = self._send_batch(send, sent)
                    continue
                put = self._prepared(number, send, sent)
                is_new = self._waits_for_topic(sent.topic, put.message.topic)
                if is_new or len(send.body) > _MESSAGE_BYTES:
                    self._put_run(run, answers)
                    answers[number] = self._in_thread(send, put.waits, partial(self._put, put))
                else:
                    run.append(put)
            except ReputError as error:
                answers[number] = _refused(send, error)
        self._put_run(run, answers)
        return answers

    @answers(RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
    def _send(self, request: Command, peer: Peer) -> Answer:
        return self.send_many(((request, peer),))[0]

    def _waits_for_topic(self, sent_to: str, put_to: str) -> bool:
        """Return whether a send must wait until its topic is saved, because this or an earlier send has created it."""
        topics = self._broker.topics
        return not (topics.is_saved(sent_to) and topics.is_saved(put_to))

    def _in_thread(self, request: Command, waits: bool, put: Callable[[], Command]) -> InThread:
        def work() -> Command:
            self._broker.topics.save()  # A message is acknowledged only after its topic is saved.
            return put()

        return self._durable(request, waits, work)

    def _put_run(self, run: list[_AcceptedSend], answers: list[Answer]) -> None:
        """Put the messages of `run` in one call, answer their senders, and clear `run`."""
        if not run:
            return
        try:
            # After an unexpected error, every sender still needs an answer.
            results = self._written.store.put_run([send.message for send in run])
        except Exception as error:
            for send in run:
                answers[send.number] = _not_put(send.request, error)
            run.clear()
            return
        counts: dict[str, list[int]] = {}
        for send, result in zip(run, results, strict=True):
            if isinstance(result, ReputError):
                answers[send.number] = _refused(send.request, result)
                continue
            count = counts.setdefault(send.message.topic, [0, 0])
            count[0] += 1
            count[1] += message_bytes(send.message)
            answer = self._success(send, result)
            waits = send.waits and self._is_synced
            answers[send.number] = self._commits.add(send.request, answer) if waits else answer
        # Count once per topic, because each call takes a lock.
        for topic, (messages, size) in counts.items():
            self._broker.counters.put(topic, messages, size)
        run.clear()

    def _sent(self, request: Command, born_host: Host) -> tuple[Sent, bool]:
        """Return the message or batch that a client sends, and whether it is a batch.

        Most fields are the same in all messages of a queue, so they are parsed once.
        """
        is_long = request.code == RequestCode.SEND_MESSAGE
        names = _LONG_NAMES if is_long else _SHORT_NAMES
        names_of_repeated = _REPEATED if is_long else _REPEATED_SHORT
        repeated = (request.code, *map(request.fields.get, names_of_repeated))
        try:
            cached = self._cache.get(repeated)
        except TypeError:
            # A field that is a list or a map is not hashable. `_sent` refuses it when it parses the field.
            cached = None
        if cached is None:
            sent = _sent(request, names, born_host)
            is_batch = request.boolean(names["batch"])
            is_batch |= request.code == RequestCode.SEND_BATCH_MESSAGE
            if all(value is None or type(value) is str for value in repeated[1:]):
                if len(self._cache) >= _MOST_CACHED:
                    self._cache.clear()
                # Hostile clients may send long fields. They must not fill the memory.
                if sum(len(str(value)) for value in repeated) <= _MOST_CACHED_CHARACTERS:
                    self._cache[repeated] = sent._replace(body=b"", properties=""), is_batch
            return sent, is_batch
        like, is_batch = cached
        return like.another(
            request.body,
            request.int64(names["bornTimestamp"]),
            request.optional_text(names["properties"]) or "",
            born_host,
        ), is_batch

    def _prepared(self, number: int, request: Command, sent: Sent) -> _AcceptedSend:
        """Return the message to put for a request. Raises ReputError."""
        message, waits = self._written.sending.message(sent)
        is_redirected = message.topic != sent.topic and sent.queue_id >= 0
        queue_id = sent.queue_id if is_redirected else message.queue_id
        return _AcceptedSend(number, request, message, waits, sent.topic, queue_id)

    def _put(self, put: _AcceptedSend) -> Command:
        """Put one message, and return the answer. Any thread may call this. Raises ReputError."""
        (result,) = self._written.store.put_run((put.message,))
        if isinstance(result, ReputError):
            raise result
        self._broker.counters.put(put.message.topic, 1, message_bytes(put.message))
        return self._success(put, result)

    def _success(self, put: _AcceptedSend, result: PutResult) -> Command:
        answer = _put_answer(put.request, result.message_id, put.queue_id, result.queue_offset)
        if put.message.topic == TIMER_TOPIC:
            answer.fields["recallHandle"] = self._recall_handle(put.topic, put.message)
        return answer

    def _recall_handle(self, topic: str, message: Message) -> str:
        properties = decode_properties(decode_utf8(properties_of(message)))
        # When a client recalls the message, `timer_due` reduces the time in the handle to the next lower multiple of
        # the timer's step, even if the time already is a multiple. TIMER_OUT_MS is a multiple. So the handle has
        # TIMER_OUT_MS plus one millisecond, which `timer_due` reduces to TIMER_OUT_MS.
        due = int(properties[TIMER_OUT_MS]) + 1
        return RecallHandle(topic, self._broker.name, due, properties[UNIQ_KEY]).encode()

    @answers(RequestCode.RECALL_MESSAGE)
    def _recall(self, request: Command, peer: Peer) -> Answer:
        """Recall a timer message (`RecallMessageProcessor`, 5.3.3)."""
        topic, code = request.text("topic"), ResponseCode.ILLEGAL_OPERATION
        if not self._broker.is_five:
            remark = " request type 370 not supported"
            raise Refusal(remark, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
        if self._broker.topics.get(topic) is None:
            remark = f"recall failed, the topic[{topic}] not exist"
            raise Refusal(remark, ResponseCode.TOPIC_NOT_EXIST)
        try:
            handle = RecallHandle.decode(request.text("recallHandle"))
        except ValueError as error:
            return request.answer(code, str(error))
        if handle.topic != topic:
            return request.answer(code, "recall failed, topic not match")
        if handle.broker_name != self._broker.name:
            return request.answer(code, "recall failed, broker service not available")
        remaining_ms = handle.due_ms - self._written.timers.now_ms()
        if not 0 < remaining_ms < MOST_TIMER_MS:
            return request.answer(code, "recall failed, timestamp invalid")
        group = {PRODUCER_GROUP: request.optional_text("producerGroup") or ""}
        properties = {name: value for name, value in recalling(handle, group).items() if value}
        sent = Sent(
            topic, RECALL_BODY, properties=encode_properties(properties),
            born_timestamp=now_ms(), born_host=peer.address,
        )  # fmt: skip
        message, _ = self._written.sending.message(sent)

        def work() -> Command:
            self._written.store.put(message)
            self._broker.counters.put(message.topic, 1, message_bytes(message))
            return request.answer(
                fields={"msgId": handle.unique_key, "MSG_REGION": "DefaultRegion"}
            )

        return self._durable(request, True, work)

    def _send_batch(self, request: Command, sent: Sent) -> Answer:
        sending = self._written.sending
        queue_id, waits = sending.batch_queue(sent)

        def put() -> Command:
            messages = sending.batch(sent, queue_id)
            results = self._written.store.put_batch(messages)
            size = sum(map(message_bytes, messages))
            self._broker.counters.put(sent.topic, len(messages), size)
            ids = ",".join([result.message_id for result in results])
            return _put_answer(request, ids, queue_id, results[0].queue_offset)

        if self._waits_for_topic(sent.topic, sent.topic) or len(request.body) > _BATCH_BYTES:
            return self._in_thread(request, waits, put)
        answer = put()
        return self._commits.add(request, answer) if waits and self._is_synced else answer

    @answers(RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2)
    def _reply(self, call: Command, peer: Peer) -> Answer:
        """Pass a reply on to the client that waits for it, and store it."""
        is_long = call.code == RequestCode.SEND_REPLY_MESSAGE
        sent = _sent(call, _LONG_NAMES if is_long else _SHORT_NAMES, peer.address)
        sending = self._written.sending
        properties = sending.decoded(sent.properties)
        client_id = properties.get(REPLY_TO_CLIENT)
        # A 5.x client takes the queue id of a reply from the route of a topic other than the reply's topic. So the
        # queue may not exist.
        queues = max(sending.topic_of(sent._replace(queue_id=0)).write_queues, 1)
        queue_id = sent.queue_id % queues if sent.queue_id >= 0 else -1
        message, waits = sending.reply(sent._replace(queue_id=queue_id))
        put = _AcceptedSend(0, call, message, waits, sent.topic, message.queue_id)
        if client_id is None:
            refusal = f"reply message properties[{REPLY_TO_CLIENT}] is null"
            return call.answer(ResponseCode.SYSTEM_ERROR, refusal)
        client = self._broker.groups.producer(client_id)
        if client is None:
            refusal = f"push reply message fail, channel of <{client_id}> not found."
            return call.answer(ResponseCode.SYSTEM_ERROR, refusal)
        later = Later()

        def work(is_delivered: bool) -> Command:
            self._broker.topics.save()
            # Like a broker, store the reply even if the client has not received it (`ReplyMessageProcessor`).
            answer_of_put = self._put(put)
            if is_delivered:
                return answer_of_put
            remark = f"push reply message to {client_id}fail."
            return answer_of_put.answer(ResponseCode.SYSTEM_ERROR, remark, answer_of_put.fields)

        def take(answer: Command | None) -> None:
            is_delivered = answer is not None and answer.code == ResponseCode.SUCCESS
            later.resolve(self._durable(call, True, partial(work, is_delivered)))

        properties[PUSH_REPLY_TIME] = str(now_ms())
        own_host = Host(peer.server_host, self._broker.port)
        is_five = self._broker.is_five
        text = encoded(properties, is_five).decode()
        fields = _pushed(call, sent, text, own_host, "" if is_five else "/")
        command = Command(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, fields=fields, body=sent.body)
        client.connection.ask(command, take)  # type: ignore[attr-defined]  # the Peer of a heartbeat
        return later

    @answers(RequestCode.CONSUMER_SEND_MSG_BACK)
    def _send_back(self, request: Command, peer: Peer) -> Answer:
        group = self._broker.subscriptions.get(request.text("group"))
        offset = request.int64("offset")
        most = None
        if (
            request.version >= _RETRY_LIMIT_VERSION
            and request.fields.get("maxReconsumeTimes") is not None
        ):
            most = request.int32("maxReconsumeTimes")
        level = request.int32("delayLevel")

        def work() -> Command:
            try:
                original = self._written.store.get(offset)
            except StoreError:
                raise Refusal(f"look message by offset failed, {offset}") from None
            if not (request.rights.is_free or self._broker.is_own_record(original, offset)):
                raise AccessError(f"no message begins at the offset {offset}")
            if not request.rights.may_read(original):
                # A broker sends the same error message (`PlainPermissionManager.checkPerm`).
                raise AccessError(f"No default permission for {original.topic}")
            config = self._written.store.config
            message = sent_back(self._broker.topics, group, original, level, most, config)
            if message is not None:
                self._broker.topics.save()
                self._written.store.put(message)
                self._broker.counters.sent_back(original.topic, group.name)
            return request.answer()

        return self._durable(request, True, work)

    @answers(RequestCode.END_TRANSACTION)
    def _end_transaction(self, request: Command, peer: Peer) -> Answer:
        decision = request.int32("commitOrRollback")
        if decision not in (SYS_FLAG_COMMIT, SYS_FLAG_ROLLBACK):
            return None  # The producer has not decided yet. It will be asked later.
        place = request.int64("commitLogOffset"), request.int64("tranStateTableOffset")
        group = request.text("producerGroup")

        def work() -> Command:
            transactions = self._written.transactions
            prepared = transactions.prepared(*place, group)
            if not request.rights.is_free:
                topic, _ = queue_of_prepared(prepared)
                is_record = self._broker.is_own_record(prepared, place[0])
                if not request.rights.may(topic, PUB) or not is_record:
                    # A broker sends the same error message (`PlainPermissionManager.checkPerm`).
                    raise AccessError(f"No default permission for {topic}")
            transactions.end(prepared, decision)
            return request.answer()

        return self._durable(request, True, work)

    def _durable(self, request: Command, waits: bool, work: Callable[[], Command]) -> InThread:
        """Return the answer of `work`, after its messages are as durable as the sender requires."""

        def guarded() -> Command:
            try:
                answer = work()
                if waits and self._is_synced:
                    self._written.store.flush()  # One sync serves all waiting senders.
            except ReputError as error:
                return _refused(request, error)
            return answer

        return InThread(guarded)


def _put_answer(request: Command, ids: str, queue_id: int, queue_offset: int) -> Command:
    place = {"msgId": ids, "queueId": str(queue_id), "queueOffset": str(queue_offset)}
    return request.answer(fields=_REGION | place)


def _pushed(
    call: Command, sent: Sent, properties: str, store_host: Host, slash: str
) -> dict[str, object]:
    """Return the fields with which a reply is passed on to the client that sent the request."""
    names = _LONG_NAMES if call.code == RequestCode.SEND_REPLY_MESSAGE else _SHORT_NAMES
    return {
        "producerGroup": call.optional_text(names["producerGroup"]) or "",
        "topic": sent.topic,
        "defaultTopic": sent.example,
        "defaultTopicQueueNums": sent.example_queues,
        "queueId": sent.queue_id,
        "sysFlag": sent.sys_flag,
        "bornTimestamp": sent.born_timestamp,
        "flag": sent.flag,
        "properties": properties,
        "reconsumeTimes": sent.reconsume_times,
        "unitMode": sent.is_unit,
        "bornHost": f"{slash}{sent.born_host}",
        "storeHost": f"{slash}{store_host}",
        "storeTimestamp": now_ms(),
    }


def refusals(broker: ServedBroker) -> dict[int, Handler]:
    """Return handlers that refuse sends, by request code. A broker with a read-only store uses them."""

    def refuse(request: Command, peer: Peer) -> Command:
        remark = f"the broker[{broker.name}] sending message is forbidden: its store is only read"
        raise Refusal(remark, ResponseCode.NO_PERMISSION)

    # Only 5.3 brokers know RECALL_MESSAGE, and their clients expect to hear that it is not supported.
    return dict.fromkeys(codes_of(Sending) - {RequestCode.RECALL_MESSAGE}, refuse)


def _sent(request: Command, names: dict[str, str], born_host: Host) -> Sent:
    properties = request.optional_text(names["properties"])
    most = request.fields.get(names["maxReconsumeTimes"])
    return Sent(
        request.text(names["topic"]), request.body, request.text(names["defaultTopic"]),
        request.int32(names["defaultTopicQueueNums"]), request.int32(names["queueId"]),
        request.int32(names["sysFlag"]), request.int64(names["bornTimestamp"]),
        request.int32(names["flag"]), properties or "",
        request.int32(names["reconsumeTimes"], 0), request.boolean(names["unitMode"]),
        None if most is None else request.int32(names["maxReconsumeTimes"]), born_host,
    )  # fmt: skip


def _not_put(request: Command, error: BaseException) -> Command:
    if isinstance(error, ReputError):
        return _refused(request, error)
    return failed(request, error)


def _refused(request: Command, error: ReputError) -> Command:
    """Return the answer to a refused or failed send, with the broker's code."""
    if isinstance(error, Refusal):
        return request.answer(error.code, str(error))
    code = ResponseCode.SYSTEM_ERROR
    if isinstance(error, NoSuchTopicError):
        code = ResponseCode.TOPIC_NOT_EXIST
    elif isinstance(error, NotAllowedError | AccessError):
        code = ResponseCode.NO_PERMISSION
    elif isinstance(error, MessageRefusedError):
        code = ResponseCode.MESSAGE_ILLEGAL
    elif isinstance(error, StoreError | UsageError) and not isinstance(error, SendRefusedError):
        code = ResponseCode.SERVICE_NOT_AVAILABLE
    return request.answer(code, str(error), _region(request, error))


def _region(request: Command, error: ReputError) -> dict[str, str]:
    """Return the fields that a broker adds to each answer to a send whose header it can read."""
    return _REGION if request.code in SENDS and not isinstance(error, FieldError) else {}


def _ask(producer: Client, message: MessageExt, question: MessageExt) -> None:
    """Ask a producer for the decision about a prepared message."""
    key = message.unique_key or ""
    fields = {
        "commitLogOffset": str(message.physical_offset),
        "msgId": key,
        "offsetMsgId": message.message_id,
        "tranStateTableOffset": str(message.queue_offset),
        "transactionId": key,
    }
    notice = request(RequestCode.CHECK_TRANSACTION_STATE, fields, encode(question))
    producer.connection.push(notice)  # type: ignore[attr-defined]  # the Peer of a heartbeat
