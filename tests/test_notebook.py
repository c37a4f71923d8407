"""The display of results in notebooks."""

from dataclasses import replace
from html.parser import HTMLParser

from reput.base.config import StoreConfig
from reput.base.notebook import cell_of, table_of, time_of
from reput.core.log.offset_range import OffsetRange
from reput.core.query.answers import QueryResult
from reput.core.query.evidence import Evidence
from reput.engine.rebuild.report import RebuildReport
from reput.testing.builders import MESSAGE
from reput.wings.lakes.report import ExportReport


class Cells(HTMLParser):
    """The texts of a table's cells. Every tag must be closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        assert tag in ("table", "caption", "thead", "tr", "th", "td", "br")
        if tag != "br":
            self._open.append(tag)
        if tag in ("caption", "th", "td"):
            self.texts.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] in ("caption", "th", "td"):
            self.texts[-1] += data


def test_a_report_is_a_table_of_what_it_says() -> None:
    report = ExportReport("/lake/<b>&", rows=1_234_567, reasons={"id is x, not int64": 3})
    cells = Cells(report._repr_html_()).texts
    assert cells[0] == "ExportReport"
    said = dict(zip(cells[1::2], cells[2::2], strict=True))
    assert said["destination"] == "/lake/<b>&"
    assert (said["rows"], said["committed"]) == ("1,234,567", "no")
    assert said["reasons"] == "id is x, not int64: 3"
    assert "damage" not in said, "nothing was found"
    Cells(RebuildReport("a", "b", config=StoreConfig())._repr_html_())


def test_messages_are_rows_whatever_their_bytes_are() -> None:
    hostile = replace(MESSAGE, topic="<i>", body=b"<script>\xff" * 99, store_timestamp=1 << 62)
    evidence = Evidence("log")
    evidence.scanned(0, 9)
    result = QueryResult((hostile, *[MESSAGE] * 24), 5, evidence.coverage(OffsetRange(0, 9)))
    cells = Cells(result._repr_html_()).texts
    assert cells[0] == "25 messages, and there are more; all could be read"
    assert cells[1:7] == [
        "topic", "queue_id", "queue_offset", "physical_offset", "store_timestamp", "body"
    ]  # fmt: skip
    rows = [cells[at : at + 6] for at in range(7, len(cells), 6)]
    assert len(rows) == 20
    assert rows[0][0] == "<i>"
    assert rows[0][4] == str(1 << 62), "no calendar has it"
    assert rows[0][5].startswith("<script>")
    assert len(rows[0][5]) == 201
    assert rows[1][4:] == [time_of(MESSAGE.store_timestamp), "hello"]


def test_long_lists_are_cut_and_numbers_have_their_thousands_apart() -> None:
    assert cell_of(list(range(12))).endswith("9<br>and 2 more")
    assert (cell_of(1234.5), cell_of(None), cell_of(True)) == ("1,234.50", "", "yes")
    assert time_of(1791794106637) == "2026-10-12T08:35:06.637+00:00"
    assert "<thead>" not in table_of("t", (), [("a", 1)])
