"""PyPI's `rocketmq` (it wraps the C++ client) against a server: `python_client.py ADDRESS COMMAND [ARGUMENT…]`.

Each command prints JSON, one line for each message.
"""

import json
import os
import sys
import threading
import time
from typing import Any

from rocketmq.client import Message, Producer, PullConsumer, PushConsumer

_SILENCE_S = 2.0
_PUSH_S = 60.0
_COMMANDS: dict[str, Any] = {}


def main(address: str, command: str, *arguments: str) -> None:
    _COMMANDS[command](address, *arguments)


def _command(function: Any) -> Any:
    _COMMANDS[function.__name__] = function
    return function


@_command
def send(address: str, topic: str, count: str) -> None:
    """Send in every possible way. Returns the id of each message, except of one-way messages."""
    producer = _producer(address)
    for number in range(int(count)):
        for how in ("sync", "delayed"):
            _tell(how=how, id=producer.send_sync(_message(topic, number, how)).msg_id)
        producer.send_oneway(_message(topic, number, "oneway"))
        result = producer.send_orderly(_message(topic, number, "ordered"), 7)
        _tell(how="ordered", id=result.msg_id)
    batch = producer.send_batch([_message(topic, number, "batch") for number in range(int(count))])
    _tell(how="batch", id=batch.msg_id)
    time.sleep(0.5)  # a one-way message may still be in flight
    producer.shutdown()


@_command
def insist(address: str, topic: str, count: str, pause_s: str) -> None:
    """Send each message until it is acknowledged."""
    producer = _producer(address)
    producer.set_timeout(1000)
    for number in range(int(count)):
        while True:
            try:
                producer.send_sync(_message(topic, number, "sync"))
                break
            except Exception as error:
                print(error, file=sys.stderr)
                time.sleep(0.1)
        _tell(body=f"sync {number}")
        time.sleep(float(pause_s))
    # After a lost connection, the client's shutdown may end with an uncaught exception of Boost.
    os._exit(0)


@_command
def push(address: str, topic: str, group: str, count: str, tags: str = "*") -> None:
    """Print messages of an ordered consumer until `count` different ones arrived, then wait for repeated ones."""
    arrived, seen = threading.Event(), set[tuple[int, int]]()
    consumer = PushConsumer(group, orderly=True)
    consumer.set_namesrv_addr(address)

    def take(message: Any) -> None:
        _tell_message(message)
        seen.add((message.queue_id, message.queue_offset))
        if len(seen) >= int(count):
            arrived.set()

    consumer.subscribe(topic, take, tags)
    consumer.start()
    if int(count):
        arrived.wait(_PUSH_S)
    time.sleep(_SILENCE_S)
    consumer.shutdown()


@_command
def pull(address: str, topic: str, group: str) -> None:
    """Pull all existing messages."""
    consumer = PullConsumer(group)
    consumer.set_namesrv_addr(address)
    consumer.start()
    for message in consumer.pull(topic):
        _tell_message(message)
    consumer.shutdown()


def _producer(address: str) -> Any:
    producer = Producer("python-producer")
    producer.set_namesrv_addr(address)
    producer.start()
    return producer


def _message(topic: str, number: int, how: str) -> Any:
    message = Message(topic)
    message.set_keys(f"{how}-{number}")
    message.set_tags(f"tag{number % 2}")
    message.set_body(f"{how} {number}")
    if how == "delayed":
        message.set_delay_time_level(1)
    return message


def _tell_message(message: Any) -> None:
    _tell(
        body=message.body.decode(errors="replace"), queue=message.queue_id, offset=message.queue_offset,
        keys=message.keys, tags=message.tags,
    )  # fmt: skip


def _tell(**facts: Any) -> None:
    facts = {
        name: value.decode(errors="replace") if isinstance(value, bytes) else value
        for name, value in facts.items()
    }
    # written in one piece, since each queue has its own thread
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
