"""PyPI's `rocketmq` (it wraps the C++ client) against a server: `python_client.py ADDRESS COMMAND [ARGUMENT…]`.

Each command prints JSON, one line for each message.
"""

import json
import sys
import threading
import time
from typing import Any

from rocketmq.client import Message, Producer, PullConsumer, PushConsumer

_SILENCE_S = 3.0


def main(address: str, command: str, *arguments: str) -> None:
    if command == "send":
        _send(address, *arguments)
    elif command == "push":
        _push(address, *arguments)
    else:
        _pull(address, *arguments)


def _message(topic: str, number: int, how: str) -> Any:
    message = Message(topic)
    message.set_keys(f"{how}-{number}")
    message.set_tags(f"tag{number % 2}")
    message.set_body(f"{how} {number}")
    if how == "delayed":
        message.set_delay_time_level(1)
    return message


def _send(address: str, topic: str, count: str) -> None:
    producer = Producer("python-producer")
    producer.set_namesrv_addr(address)
    producer.start()
    for number in range(int(count)):
        for how in ("sync", "delayed"):
            _tell(how=how, id=producer.send_sync(_message(topic, number, how)).msg_id)
        producer.send_oneway(_message(topic, number, "oneway"))
        result = producer.send_orderly(_message(topic, number, "ordered"), 7)
        _tell(how="ordered", id=result.msg_id)
    batch = producer.send_batch([_message(topic, number, "batch") for number in range(int(count))])
    _tell(how="batch", id=batch.msg_id)
    time.sleep(0.5)  # what is sent one-way is still on its way
    producer.shutdown()


def _push(address: str, topic: str, group: str, count: str) -> None:
    arrived, seen = threading.Event(), set[str]()
    consumer = PushConsumer(group)
    consumer.set_namesrv_addr(address)

    def take(message: Any) -> None:
        _tell_message(message)
        seen.add(message.id)
        if len(seen) >= int(count):
            arrived.set()

    consumer.subscribe(topic, take)
    consumer.start()
    arrived.wait(60)
    time.sleep(_SILENCE_S)  # none comes twice
    consumer.shutdown()


def _pull(address: str, topic: str, group: str) -> None:
    consumer = PullConsumer(group)
    consumer.set_namesrv_addr(address)
    consumer.start()
    for message in consumer.pull(topic):
        _tell_message(message)
    consumer.shutdown()


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
    print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
