"""Inspect the files of a store, and check that they match each other."""

from typing import TYPE_CHECKING

from reput.base.lazy import face

if TYPE_CHECKING:
    from reput.engine.check.index_inspection import IndexInspection as IndexInspection
    from reput.engine.check.marker_inspection import CheckpointInspection as CheckpointInspection
    from reput.engine.check.marker_inspection import MarkerInspection as MarkerInspection
    from reput.engine.check.marker_inspection import inspect_checkpoint as inspect_checkpoint
    from reput.engine.check.operation import check as check
    from reput.engine.check.run import check_store as check_store
else:
    __getattr__, __dir__ = face(__name__)
