"""Everything public that could read messages: the paths of the harness that ask it, or the reason why none does.

A tuple names paths (`tests.truth.answers.PATHS`). A text is a reason.
"""

from __future__ import annotations

Place = tuple[str, ...] | str

_WRITES = "writes; it reads the log by scans and rules of recovery, which tests of its room compare with an oracle"
_TYPE = "a type, not a reader"
_STATE = "state of the broker beside the messages"
_SEND = "writes messages"
_NUMBERS = "numbers of queues and offsets, no messages"
_NAMES = "names of topics and numbers of queues, no messages"

API: dict[str, Place] = {
    "Message": _TYPE, "MessageExt": _TYPE, "NamedStore": _TYPE, "ReputError": _TYPE, "StoreConfig": _TYPE,
    "WriterSettings": _TYPE, "WritableStore": "reads through its own MessageStore and SharedStore",
    "IndexFile": "entries of one file, no messages", "ConsumeQueue": "entries of one queue, no messages",
    "MessageStore": ("MessageStore.query", "MessageStore.pull"),
    "open_store": ("MessageStore.query", "MessageStore.pull"),
    "archive": "copies log files and compares them with checksums",
    "restore": "writes a store from an archive, which check then reads",
    "verify_archive": "compares bytes with checksums; a message that it proves is the record at its offset",
    "verify_erasure": "compares records of the log with an erasure record, and returns problems",
    "with_archive": "returns a path; stores of the harness are read through it",
    "check": "returns findings, no messages", "prove": "returns proofs, no messages",
    "diff": "compares two stores, and returns differences",
    "inspect": "returns sizes and findings, no messages",
    "erase": _WRITES, "rebuild": _WRITES, "repair": _WRITES, "undo_repair": _WRITES,
    "dataset": ("reput.dataset", "reput.dataset rows"), "export": ("reput.export",),
    "find": ("reput.find",), "lag": ("reput.lag",),
    "look_up": ("reput.look_up",), "report": "a page of figures and findings",
    "stats": ("reput.stats",),
    "tail": ("reput.tail",), "trace": ("reput.trace",),
}  # fmt: skip

STORE_METHODS: dict[str, Place] = {
    **dict.fromkeys(
        ("begin_offset", "broker_end", "check_open", "checkpoint", "close", "end_offset", "lost_end"),
        "ends of the log, no messages",
    ),
    **dict.fromkeys(("list_queues", "topics"), "names of the queues that exist; queues may be lost"),
    **dict.fromkeys(("min_queue_offset", "max_queue_offset"), ("MessageStore.pull",)),
    **dict.fromkeys(("check_begin", "check_end", "check_later"), ("LogTail", "LogTail newest")),
    "key_planner": "plans a search", "may_have_replaced_ids": "a fact about the store's version",
    "query": ("MessageStore.query", "SharedStore.query"), "query_steps": ("MessageStore.query_steps",),
    "find_records": ("serve --exact QUERY_MESSAGE",), "find_by_tags": ("MessageStore.find_by_tags",),
    "index_tags_from": "a fact about the store's IndexFiles", "search": ("reput.trace",),
    "find_by_id": ("MessageStore.find_by_id",), "get_by_id": ("reput show",),
    "get_by_offset_id": ("MessageStore.find_by_id",), "get": ("MessageStore.get",),
    "locate": ("MessageStore.get_record",), "get_record": ("MessageStore.get_record",),
    "get_by_queue": ("MessageStore.get_by_queue",),
    "query_message": ("MessageStore.query_message",), "query_offset": ("MessageStore.query_message",),
    "query_records": ("serve QUERY_MESSAGE",), "quick_query": ("serve QUERY_MESSAGE",),
    "pull": ("MessageStore.pull",), "pull_records": ("MessageStore.pull_records",),
    "quick_records": ("serve PULL_MESSAGE",),
    "offset_by_time": ("MessageStore.offset_by_time",), "end_offset_by_time": ("MessageStore.offset_by_time",),
    "spans_by_time": ("messages_of_topic", "messages_of_topic newest"),
}  # fmt: skip

COMMANDS: dict[str, Place] = {
    "find": ("reput find",), "query": ("reput query",), "show": ("reput show",), "tail": ("reput tail",),
    "trace": ("reput trace",),
    "lookup": ("reput lookup",), "export": ("reput export",),
    "serve": ("serve --exact QUERY_MESSAGE", "serve PULL_MESSAGE", "/api/messages"),
    "fleet": "a summary of many stores", "inspect": "sizes and findings, no messages",
    "check": "findings, no messages", "stats": ("reput.stats",),
    "report": "a page of figures and findings", "diff": "differences of two stores",
    "prove": "proofs, no messages", "state": _STATE,
    "rebuild": _WRITES, "repair": _WRITES, "recover": _WRITES, "expire": _WRITES, "erase": _WRITES,
    "compact-table": "rewrites files of an exported table", "put": _SEND,
    "archive": "copies log files", "restore": "writes a store from an archive",
    "help": "text", "warm-up": "compiles", "completion": "text",
}  # fmt: skip

SPARK: dict[str, Place] = {
    "register": ("spark table", "spark stream"), "lookup": ("spark lookup",), "coverage_of": "no messages",
    "rebuild": _WRITES, "follow": _WRITES, "export": "as reput.export, with tasks of Spark",
    "explain": "a plan, no messages",
}  # fmt: skip

REQUESTS: dict[str, Place] = {
    "PULL_MESSAGE": ("serve PULL_MESSAGE", "serve --exact PULL_MESSAGE"),
    "LITE_PULL_MESSAGE": ("serve PULL_MESSAGE", "serve --exact PULL_MESSAGE"),
    "QUERY_MESSAGE": ("serve QUERY_MESSAGE", "serve --exact QUERY_MESSAGE"),
    "VIEW_MESSAGE_BY_ID": ("serve VIEW_MESSAGE_BY_ID",),
    "SEARCH_OFFSET_BY_TIMESTAMP": ("serve --exact SEARCH_OFFSET_BY_TIMESTAMP",),
    "GET_MIN_OFFSET": ("serve PULL_MESSAGE", "serve --exact PULL_MESSAGE"),
    **dict.fromkeys(
        ("GET_MAX_OFFSET", "GET_EARLIEST_MSG_STORETIME", "QUERY_CONSUME_QUEUE", "GET_TOPIC_STATS_INFO",
         "GET_CONSUME_STATS", "QUERY_CONSUME_TIME_SPAN", "GET_BROKER_CONSUME_STATS"),
        _NUMBERS,
    ),
    **dict.fromkeys(
        ("SEND_MESSAGE", "SEND_MESSAGE_V2", "SEND_BATCH_MESSAGE", "SEND_REPLY_MESSAGE",
         "SEND_REPLY_MESSAGE_V2", "CONSUMER_SEND_MSG_BACK", "END_TRANSACTION", "RECALL_MESSAGE"),
        _SEND,
    ),
    **dict.fromkeys(
        ("QUERY_CONSUMER_OFFSET", "UPDATE_CONSUMER_OFFSET", "UPDATE_AND_CREATE_TOPIC", "GET_ALL_TOPIC_CONFIG",
         "GET_BROKER_CONFIG", "GET_BROKER_RUNTIME_INFO", "HEART_BEAT", "UNREGISTER_CLIENT",
         "GET_CONSUMER_LIST_BY_GROUP", "CHECK_TRANSACTION_STATE", "NOTIFY_CONSUMER_IDS_CHANGED", "LOCK_BATCH_MQ",
         "UNLOCK_BATCH_MQ", "GET_ALL_CONSUMER_OFFSET", "GET_ALL_DELAY_OFFSET", "CHECK_CLIENT_CONFIG",
         "PUT_KV_CONFIG", "GET_KV_CONFIG", "DELETE_KV_CONFIG", "GET_ROUTEINFO_BY_TOPIC", "GET_BROKER_CLUSTER_INFO",
         "UPDATE_AND_CREATE_SUBSCRIPTIONGROUP", "GET_ALL_SUBSCRIPTIONGROUP_CONFIG", "GET_CONSUMER_CONNECTION_LIST",
         "GET_PRODUCER_CONNECTION_LIST", "GET_ALL_TOPIC_LIST_FROM_NAMESERVER", "DELETE_SUBSCRIPTIONGROUP",
         "DELETE_TOPIC_IN_BROKER", "DELETE_TOPIC_IN_NAMESRV", "GET_KVLIST_BY_NAMESPACE",
         "RESET_CONSUMER_CLIENT_OFFSET", "GET_CONSUMER_STATUS_FROM_CLIENT", "INVOKE_BROKER_TO_RESET_OFFSET",
         "INVOKE_BROKER_TO_GET_CONSUMER_STATUS", "GET_TOPICS_BY_CLUSTER", "QUERY_TOPIC_CONSUME_BY_WHO",
         "GET_SYSTEM_TOPIC_LIST_FROM_NS", "GET_SYSTEM_TOPIC_LIST_FROM_BROKER", "GET_CONSUMER_RUNNING_INFO",
         "CONSUME_MESSAGE_DIRECTLY", "GET_UNIT_TOPIC_LIST", "GET_HAS_UNIT_SUB_TOPIC_LIST",
         "GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST", "CLONE_GROUP_OFFSET", "VIEW_BROKER_STATS_DATA", "GET_NAMESRV_CONFIG",
         "PUSH_REPLY_MESSAGE_TO_CLIENT", "GET_ALL_PRODUCER_INFO", "QUERY_TOPICS_BY_CONSUMER",
         "QUERY_SUBSCRIPTION_BY_CONSUMER", "GET_TOPIC_CONFIG", "GET_SUBSCRIPTIONGROUP_CONFIG", "QUERY_ASSIGNMENT"),
        _STATE,
    ),
}  # fmt: skip

ROUTES: dict[str, Place] = {
    "/api/messages": ("/api/messages",), "/api/messages/{id}": ("/api/messages/{id}",),
    "/api/queues/{topic}/{queue:int64}": ("/api/queues/{topic}/{queue}",), "/api/trace": ("/api/trace",),
    "/api/stores": _NUMBERS, "/api/topics": _NUMBERS,
    "/api/topics/{topic}/volume": "numbers of messages in the order of the queue, for a diagram",
    "/api/check": "findings, no messages", "/api/openapi.json": "text", "/static": "text",
    "/livez": "health", "/readyz": "health", "/healthz": "health", "/metrics": "metrics",
    "/": ("GET /",), "/start": _NAMES, "/download": ("GET /download",), "/trace": ("GET /trace",),
    "/live": ("GET /live",), "/live/rows": "new messages after those of /live",
    "/searches/{search}/stop": "stops a search", "/messages/{offset:int64}": ("GET /messages/{offset}",),
    "/messages/{offset:int64}/body": "the body of a message that /messages/{offset} shows",
    "/messages/{offset:int64}/record": ("GET /messages/{offset}/record",),
    "/groups": _STATE, "/groups/{group}": _STATE, "/topics": _NAMES, "/suggest/topics": _NAMES,
    "/topics/{topic}": ("GET /topics/{topic}",), "/topics/{topic}/spark": "a diagram",
    "/queues/{topic}/{queue:int64}": ("GET /queues/{topic}/{queue}",),
    "/stores": _NUMBERS, "/stores/{name}": _NUMBERS, "/stores/{name}/findings": "findings, no messages",
    "/stores/{name}/check": "findings, no messages",
    "/login": "signs a user in", "/logout": "signs a user out",
}  # fmt: skip
