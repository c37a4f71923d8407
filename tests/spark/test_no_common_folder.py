"""A cluster whose executors have no common file system with the driver: they share only a bucket."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.golden.stores import GoldenStore
from tests.rebuild.rebuilding import assert_golden
from tests.remote.s3_server import s3_server, upload_whole
from tests.spark.standalone import StandaloneCluster, run_python

pytest.importorskip("obstore")

Golden = Callable[[str], GoldenStore]
_HIDING = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"')
"""Arguments before a folder and a command: run the command with an empty file system mounted over the folder."""
_DRIVER = """
import json, sys
from pathlib import Path
import reput
from reput.base.config import StoreConfig
from reput.errors import ReputError
from reput.spark import lookup, rebuild
from reput.spark.bulk_lookup import coverage_of
from reput.spark.session import create_session

master, url, local, config, folder, options = sys.argv[1:]
options, folder = json.loads(options), Path(folder)
config = StoreConfig.from_broker_config(config)
spark = create_session(master)
refused = {}

def refuse(name, job):
    try:
        job()
    except ReputError as error:
        refused[name] = str(error)

rebuild(spark, url, config=config, output=folder / "fetched", staging=f"{url}-staging",
        split_size=100_000, storage_options=options)
report = reput.export(url, f"{url}-lake", runner=spark, storage_options=options)
found = lookup(spark, url, [("orders", "nobody"), ("lmq", "none")], staging=f"{url}-keys",
               storage_options=options)
rows = found.count()
refuse("rebuild", lambda: rebuild(spark, url, config=config, output=folder / "rebuilt", storage_options=options))
refuse("export", lambda: reput.export(url, folder / "lake", runner=spark, storage_options=options))
refuse("look-up", lambda: lookup(spark, url, [("a", "b")], staging=str(folder / "keys"), storage_options=options))
refuse("local store", lambda: reput.export(local, f"{url}-other", runner=spark, storage_options=options))
print(json.dumps({"messages": report.messages, "rows": rows, "refused": refused}))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that executors cannot access."""
    (folder := tmp_path / "driver").mkdir()
    return folder


@pytest.fixture
def apart(tmp_path: Path, folder: Path) -> Iterator[StandaloneCluster]:
    within = (*_HIDING, str(folder))
    can_hide = (
        shutil.which("unshare") and not subprocess.run([*within, "true"], check=False).returncode
    )
    if not can_hide:
        pytest.skip("mount namespaces need Linux and root")
    (work := tmp_path / "cluster").mkdir()
    cluster = StandaloneCluster(work, within=within)
    yield cluster
    cluster.stop()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_bucket_is_all_that_executors_and_driver_share(
    golden: Golden, folder: Path, apart: StandaloneCluster
) -> None:
    store, bare = golden("lmq"), folder / "store"
    shutil.copytree(store.path / "commitlog", bare / "commitlog")
    with s3_server() as options:
        url = upload_whole(bare, "apart", options)
        config = str(store.root / "config.properties")
        arguments = (apart.url, url, str(bare), config, str(folder), json.dumps(options))
        ended = run_python(_DRIVER, *arguments, timeout_s=800)
    print(ended.stdout, ended.stderr)
    assert ended.returncode == 0, ended.stderr
    said = json.loads(ended.stdout)
    assert_golden(folder / "fetched", store)
    assert said["messages"] == len(store.messages)
    assert said["rows"] == 2
    assert said["refused"].keys() == {"rebuild", "export", "look-up", "local store"}
