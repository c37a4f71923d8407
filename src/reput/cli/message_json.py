"""A message as JSON: what `query --format jsonl` and `show --format json` print.

docs/message-json.md describes the fields; they are stable, new ones may be added.
"""

from __future__ import annotations

import json
from typing import Any

from reput.format.commit_log import MessageExt
from reput.format.message_id import encode_offset_id
from reput.format.properties import KEY_SEPARATOR, KEYS, TAGS, UNIQ_KEY


def message_fields(message: MessageExt) -> dict[str, Any]:
    """The fields in their order; `body` where the bytes are UTF-8, else `body_base64`."""
    properties = message.properties
    return {
        "message_id": encode_offset_id(message.store_host, message.physical_offset),
        "unique_key": properties.get(UNIQ_KEY),
        "topic": message.topic,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "physical_offset": message.physical_offset,
        "size_bytes": message.size_bytes,
        "store_timestamp": message.store_timestamp,
        "store_host": str(message.store_host),
        "born_timestamp": message.born_timestamp,
        "born_host": str(message.born_host),
        "flag": message.flag,
        "sys_flag": message.sys_flag,
        "transaction": message.transaction,
        "reconsume_times": message.reconsume_times,
        "prepared_transaction_offset": message.prepared_transaction_offset,
        "body_crc_ok": message.body_crc_ok,
        "tags": properties.get(TAGS),
        "keys": [key for key in properties.get(KEYS, "").split(KEY_SEPARATOR) if key],
        "properties": properties,
        **_body(message.body),
    }


def message_line(message: MessageExt) -> bytes:
    """One line of JSON Lines, without its end, in UTF-8."""
    return json.dumps(message_fields(message), ensure_ascii=False, separators=(",", ":")).encode()


def _body(body: bytes) -> dict[str, str]:
    try:
        return {"body": body.decode("utf-8")}
    except UnicodeDecodeError:
        from base64 import b64encode

        return {"body_base64": b64encode(body).decode("ascii")}
