"""Which types the JSON bodies of a run have: of a file, or inferred, in a table that may have some already."""

from __future__ import annotations

from collections.abc import Sequence

from reput.errors import UsageError
from reput.lakes.commit import Destination, State
from reput.lakes.json_evolution import Widenings, changes, evolved
from reput.lakes.json_inference import ShapeInference
from reput.lakes.json_shape import JsonShape
from reput.lakes.report import ExportReport
from reput.lakes.request import INFER, ExportRequest
from reput.lakes.task import sample_bodies
from reput.table.plan import ReadTask

_SAMPLED_BODIES = 2000


def choose_shape(
    request: ExportRequest,
    destination: Destination,
    state: State | None,
    tasks: Sequence[ReadTask],
    report: ExportReport,
) -> JsonShape | None:
    """The shape of this run's bodies, None where they stay bytes; the report has what is new of it.

    Raises UsageError where the table cannot have what a file asks for.
    """
    given = request.json_body
    if given is None:
        return None
    known = None if state is None else state.shape
    if given == INFER:
        shape = _inferred(request, known, destination.widens, tasks, report)
    else:
        shape = _of_file(given, known, destination)
    if known is not None:
        report.json_changes = changes(known, shape)
    return shape


def _of_file(path: str, known: JsonShape | None, destination: Destination) -> JsonShape:
    shape = JsonShape.from_file(path)
    if known is None:
        return shape
    try:
        return evolved(known, shape, destination.widens)
    except ValueError as error:
        raise UsageError(
            f"{destination.name}: was begun with another json_body: {path} has other types: "
            f"{error}; add fields only, or export to another place",
            arguments=["json_body"],
        ) from None


def _inferred(
    request: ExportRequest,
    known: JsonShape | None,
    widens: Widenings,
    tasks: Sequence[ReadTask],
    report: ExportReport,
) -> JsonShape:
    inference = ShapeInference(known, widens=widens, timestamps=request.json_timestamps)
    inference.add_all(sample_bodies(list(tasks), request, _SAMPLED_BODIES))
    shape = inference.shape
    report.notes += inference.notes
    return shape
