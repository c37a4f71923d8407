"""Mistakes on the command line: each is answered in one line that says what is wrong, and often what to do."""

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from reput.cli.main import FAILED, NOT_FOUND, WRONG_USE
from tests.cli.running import one_line, reput
from tests.golden.stores import GoldenStore

# The command, and a part of its answer. STORE is a store. The others do not exist, or are files in the working folder.
MISTAKES = """
query                                           | name a STORE, or a fleet file
query STORE                                     | pass --key, --id, --topic, --begin or --end
query STORE order-1                             | 'order-1' is not a STORE; to find a message: reput find STORE order-1
query STORE order-1 order-2                     | 'order-1 order-2' is not a STORE; to find a message: reput find STORE
query STORE --topic                             | Option '--topic' requires an argument
query STORE --topic orders --key                | Option '--key' requires an argument
query --key o-1                                 | name a STORE
query STORE --key o --id i                      | cannot be combined with --key
query STORE --key o --tag t                     | cannot be combined with --key
query STORE --id 53821                          | is an offset, not an id: reput show STORE 53821
query STORE --keys order-1                      | Did you mean '--key'?
query STORE -k order-1                          | No such option '-k' (see reput query --help)
query STORE --topic orders --begin yesterday    | 'yesterday' is not a time: write
query STORE --topic orders --begin 14.10.2026   | is not a time
query STORE --topic orders --begin 2026-13-01   | is not a time
query STORE --topic orders --begin 1791794106   | looks like seconds since 1970
query STORE --topic orders --begin '5 moons ago' | 'moons' is not a unit of time
query STORE --topic t --begin 2026-10-15 --end 2026-10-14 | is after --end
query STORE --topic orders --limit 0            | --limit must be at least 1, not 0
query STORE --topic orders --limit ten          | 'ten' is not a valid integer
query STORE --format xml --key k                | is not one of 'text', 'json', 'jsonl', 'csv'
query STORE --format table --key k              | is not one of 'text', 'json', 'jsonl', 'csv'
query STORE --after 5 --topic orders            | --after needs --key
query STORE --compat --key k                    | --compat needs --topic and --key
query nowhere --key k                           | nowhere: not a RocketMQ store
query STORE/index --key k                       | the store is in STORE
query STORE --broker-config nope.conf --key k   | nope.conf: no such file
query STORE --broker-config bad.conf --key k    | bad.conf: maxIndexNum must be
query STORE --hash-slots 1e6 --key k            | '1e6' is not a valid integer
query STORE --hash-slots 0 --key k              | --hash-slots
query STORE --archive nowhere --key k           | is not an archive
query STORE STORE --archive a --key k           | only for one STORE
query --stores nope.toml --key k                | nope.toml: no such fleet file
query --stores bad.conf --key k                 | bad.conf
query STORE --topic orders --tag '||'           | tag
show                                            | Missing argument 'ID_OR_OFFSET'
show STORE                                      | reput show STORE 53821
show 53821 STORE                                | the STORE comes first: reput show STORE 53821
show STORE orders/1                             | as TOPIC/QUEUE/OFFSET, such as orders/1/11
show STORE orders/1/999999                      | queue orders/1 has offsets 0 to 1310
show STORE nosuch/0/0                           | no queue 0 of topic 'nosuch'
show STORE 99999999999                          | the files end at 7340032
show STORE 53822                                | no message begins there
show STORE -5                                   | No such option '-5'
find                                            | Missing argument 'TEXT'
find STORE                                      | reput find STORE TEXT
find STORE ''                                   | TEXT is empty
find STORE a b c                                | reput find STORE 'a b c'
find STORE x --limit 0                          | --limit must be at least 1
find nowhere x                                  | nowhere: not a RocketMQ store
tail STORE orders                               | --key orders, or --topic orders
tail STORE -n -1                                | neither a number of messages nor 'all'
tail STORE --lines 0                            | add --follow
tail STORE --follow --end now                   | --end: cannot be combined with --follow
tail STORE --topic orderz                       | no topic orderz; it has orders
trace STORE                                     | pass one of --key and --id
trace STORE order-1                             | reput trace STORE --id order-1, or --key order-1
trace STORE --key a --id b                      | pass one of --key and --id
trace STORE --id b --topic orders               | --topic can be combined with --key only
trace STORE --key k --output no/dir/x.html      | is not a folder
trace STORE --key k --output STORE/x.html       | is in the store
lookup STORE                                    | Missing option '--keys'
lookup STORE --keys keys.csv                    | Missing option '--output'
lookup STORE --keys nope.csv --output o         | --keys nope.csv: no such file
inspect                                         | Missing argument 'PATH'
inspect STORE orders                            | write a queue as TOPIC/QUEUE
inspect STORE nosuch/0                          | no queue 0 of topic 'nosuch'
inspect STORE orders/0 --entries 9-5            | the first queue offset is after the last one
inspect STORE orders/0 --entries a-b            | write queue offsets as FROM-TO
inspect STORE --slots                           | not an IndexFile
inspect STORE --slots --items                   | pass only one of
check                                           | name a STORE
check nope                                      | nope: not a RocketMQ store
check STORE --full                              | No such option '--full'
check STORE --fail-on never                     | is not one of 'damage', 'warning'
check STORE --runner local                      | is not one of 'auto', 'serial', 'processes', 'spark'
check STORE --json                              | use --format json
diff STORE                                      | Missing argument 'B'
diff STORE nope                                 | nope: not a RocketMQ store
prove nope                                      | nope: not a RocketMQ store
rebuild                                         | name a STORE
rebuild STORE --only queues                     | is not one of 'consumequeue', 'index'
rebuild STORE --output STORE/index              | is a part of the store STORE
rebuild STORE --follow                          | --follow needs --output
rebuild STORE --split-size 5                    | --split-size must be at least 16384, not 5
rebuild STORE --split-size huge                 | 'huge' is not a size: write 128MiB
repair STORE --undo                             | no repair to undo
repair nope                                     | no such folder
recover nope                                    | nope: not a RocketMQ store
recover STORE extra                             | extra argument (extra)
put                                             | Missing argument 'STORE'
put new --body x                                | need --topic
put new --topic T --body x --property a         | --property: write NAME=VALUE
put new --topic T --body x --queue-id -1        | -1 is not in the range x>=0
put new nope.jsonl                              | No such file or directory
put STORE/commitlog --topic T --body x          | is a part of the store STORE
export STORE                                    | before DEST: reput export STORE DEST
export STORE out --to csv                       | must be one of parquet, iceberg, delta
export STORE out --columns a,,b                 | a name is empty; write A,B
export STORE out --columns nosuch               | no column nosuch; choose from
export STORE out --partition-by month           | must be one of topic
export STORE - --to parquet                     | only for --to jsonl
export STORE STORE                              | name a place outside
archive STORE                                   | pass a STORE and an ARCHIVE
archive --verify nope                           | is not an archive
restore nope dest                               | is not an archive
erase STORE --output d                          | select the messages to erase with --topic, --key or --query
expire STORE                                    | Missing option '--before'
expire STORE --before yesterday                 | is not a time
serve STORE --listen 99999999                   | write HOST:PORT
serve STORE --http 8080x                        | write HOST:PORT
serve STORE --http-only                         | --http-only needs --http
serve STORE --workers 0                         | is not in the range
state lags STORE                                | Did you mean 'lag'?
state timer STORE STORE                         | extra argument
state tiered STORE --key k                      | need --topic
fleet STORE --format nagois                     | 'nagios', 'prometheus'
report STORE                                    | Missing option '--output'
help nothing                                    | no command or topic 'nothing'
completion powershell                           | is not one of 'bash', 'zsh', 'fish'
lag STORE                                       | use: reput state lag
compact                                         | did you mean compact-table?
qurey STORE                                     | did you mean query?
--verison                                       | No such option '--verison'
warm-up now                                     | extra argument (now)
query STORE --key ''                            | --key is empty
query STORE --id=                               | --id is empty
query STORE --topic ''                          | --topic is empty
query STORE --charset latin-99 --key k          | --charset latin-99: unknown; examples are utf-8
query STORE --key k --index nope                | --index nope: no such directory
query STORE,nolog --key k                       | nolog: no such directory
query STORE --end 2026-10-14T25:00 --topic t    | is not a time
show STORE ''                                   | ID_OR_OFFSET is empty
show STORE orders/1/11/5                        | as TOPIC/QUEUE/OFFSET, such as orders/1/11
tail STORE --key ''                             | --key is empty
tail STORE --queue-id -1                        | -1 is not in the range x>=0
tail STORE --tag '||'                           | write 'a || b'
tail STORE --begin tomorrow                     | 'tomorrow' is not a time
trace STORE --key ''                            | --key is empty
trace STORE --key k --limit 0                   | --limit must be at least 1
trace STORE --key k --queue-messages -1         | --queue-messages must be at least 1
lookup STORE --keys bad.conf --output o         | must be a .csv file with a header line
lookup STORE --keys keys.csv --output - --format parquet | pass --output DIR
lookup STORE --keys keys.csv --output o --columns nosuch | no column nosuch
inspect STORE orders/0 --at x                   | 'x' is not a valid integer (see
fleet STORE --store-timeout soon                | 'soon' is not a valid number (see
fleet STORE --store-timeout 0                   | is not in the range x>0
fleet --stores keys.csv                         | keys.csv: not TOML
check STORE --scrub --quick                     | --scrub: cannot be combined with --quick
check STORE --scrub --rate fast                 | 'fast' is not a size
check STORE --passes 2                          | --rate and --passes need --scrub
rebuild STORE --queues sqlite                   | is not one of 'files', 'rocksdb'
repair STORE --plan --undo                      | --undo: cannot be combined with --plan
put new --topic '' --body x                     | --topic is empty
put new --topic a/b --body x                    | topic 'a/b' cannot be the name of a folder
put new --topic T --body x --key 'a b'          | keys must not be empty or contain spaces
put keys.csv --topic T --body x                 | keys.csv: is a file; a store is a folder
export STORE out --charset gbk                  | --charset needs --json-body
export STORE keys.csv                           | keys.csv: is a file; a table is a folder
archive STORE STORE                             | lies in the store STORE; name a place outside
archive STORE STORE/archive                     | lies in the store STORE; name a place outside
erase STORE --topic orders --output STORE/copy  | lies in the store STORE; name a place outside
erase STORE --query 'a ==' --plan               | SQL filter: expected a property
restore keys.csv dest                           | keys.csv
state lag STORE --group ''                      | --group is empty
state timer STORE --key                         | Option '--key' requires an argument
serve STORE --http 127.0.0.1:0 --http-users no.toml --listen 127.0.0.1:0 | --http-users no.toml: no such file
compact-table nope                              | contains no table
diff STORE STORE extra                          | extra argument (extra)
help stores extra                               | did you mean stores?
stats STORE --topic orders                      | No such option '--topic'
"""
TABLE = [tuple(map(str.strip, line.split(" | ", 1))) for line in MISTAKES.strip().splitlines()]


def test_there_are_more_than_a_hundred() -> None:
    assert len(TABLE) == len({line for line, _ in TABLE}) > 165


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mistakes")
    (folder / "bad.conf").write_text("maxIndexNum=many\n")
    (folder / "keys.csv").write_text("topic,key\norders,o\n")
    return folder


@pytest.mark.every_case
@pytest.mark.parametrize(("typed", "answer"), TABLE, ids=[line for line, _ in TABLE])
def test_a_mistake_is_answered_in_one_useful_line(
    golden: Callable[[str], GoldenStore],
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    typed: str,
    answer: str,
) -> None:
    store = str(golden("orders").path)
    monkeypatch.chdir(place)
    before = sorted(place.rglob("*"))
    ran = reput(*shlex.split(typed.replace("STORE", store)))
    assert ran.code in (NOT_FOUND, WRONG_USE, FAILED)
    assert ran.out in ("", "No message.\n")
    line = one_line(ran).replace(store, "STORE")
    assert line.startswith("reput: ")
    assert answer in line
    assert "Traceback" not in line
    assert ".. (" not in line
    # A mistake creates nothing.
    assert sorted(place.rglob("*")) == before
