"""Draw two pictures of a store, without Spark: python -m examples.plots [STORE [FOLDER]]

messages.png  messages per hour, by topic
payments.png  the time from an order to its payment

Needs matplotlib: pip install matplotlib.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from examples.shop import store_of
from reput.cli.main import main as reput

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.dates import DateFormatter

HOUR_MS = 3_600_000


def read_messages(store: Path) -> pa.Table:
    """Export the store to Parquet, and return topic, key and store time (ms) of every message."""
    with tempfile.TemporaryDirectory(prefix="reput-example-") as folder:
        table = Path(folder) / "messages"
        code = reput(["export", str(store), str(table), "--columns", "topic,key,store_timestamp"])
        if code:
            sys.exit(code)
        found = ds.dataset(table).to_table()
    ms = found["store_timestamp"].cast(pa.timestamp("ms")).cast(pa.int64())
    return pa.table({"topic": found["topic"], "key": found["key"], "ms": ms})


def per_hour(
    messages: pa.Table,
) -> tuple[npt.NDArray[np.datetime64], dict[str, npt.NDArray[np.int64]]]:
    """Return the hours (UTC), and for each topic the number of messages in each hour."""
    hours = messages["ms"].to_numpy() // HOUR_MS
    first, last = int(hours.min()), int(hours.max())
    topics = {
        topic: np.bincount(
            hours[pc.equal(messages["topic"], topic).to_numpy()] - first, minlength=last - first + 1
        )
        for topic in sorted(messages["topic"].unique().to_pylist())
    }
    return np.arange(first, last + 1).astype("datetime64[h]"), topics


def waits_s(messages: pa.Table) -> npt.NDArray[np.float64]:
    """Return the seconds from each order to its first payment."""
    parts = [
        messages.filter(pc.field("topic") == topic).group_by("key").aggregate([("ms", "min")])
        for topic in ("orders", "payments")
    ]
    both = parts[0].join(parts[1], "key", join_type="inner", right_suffix="_paid")
    waits: npt.NDArray[np.int64] = pc.subtract(both["ms_min_paid"], both["ms_min"]).to_numpy()
    return waits / 1000


def main(arguments: list[str]) -> None:
    folder = Path(arguments[1] if len(arguments) > 1 else ".")
    folder.mkdir(parents=True, exist_ok=True)
    with store_of(arguments[:1]) as store:
        messages = read_messages(store)
    hours, topics = per_hour(messages)
    figure, axes = plt.subplots(figsize=(9, 4), layout="constrained")
    axes.stackplot(hours, list(topics.values()), labels=list(topics))
    axes.set(xlabel="UTC", ylabel="messages per hour", title="What passed through")
    axes.xaxis.set_major_formatter(DateFormatter("%a %d %b"))
    axes.margins(x=0)
    axes.legend(loc="upper left", fontsize="small")
    figure.savefig(folder / "messages.png")
    figure, axes = plt.subplots(figsize=(9, 4), layout="constrained")
    waits = waits_s(messages)
    axes.hist(waits, bins=60)
    axes.axvline(
        float(np.median(waits)), color="black", label=f"half within {np.median(waits):.0f} s"
    )
    axes.set(xlabel="seconds from order to payment", ylabel="orders", title="How fast people pay")
    axes.legend()
    figure.savefig(folder / "payments.png")
    print(f"{folder / 'messages.png'} and {folder / 'payments.png'}: {len(waits):,} payments")


if __name__ == "__main__":
    main(sys.argv[1:])
