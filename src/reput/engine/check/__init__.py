"""Inspect the files of a store, and check that they match each other."""

from typing import TYPE_CHECKING

from reput.base.lazy import face

if TYPE_CHECKING:
    from reput.engine.check.index_inspection import IndexInspection as IndexInspection
    from reput.engine.check.marker_inspection import CheckpointInspection as CheckpointInspection
    from reput.engine.check.marker_inspection import MarkerInspection as MarkerInspection
    from reput.engine.check.marker_inspection import inspect_checkpoint as inspect_checkpoint
    from reput.engine.check.operation import check as check
    from reput.engine.check.proofs import Proofs as Proofs
    from reput.engine.check.proofs import ProofStore as ProofStore
    from reput.engine.check.proofs import inode_of as inode_of
    from reput.engine.check.proofs import path_of as path_of
    from reput.engine.check.run import check_store as check_store
    from reput.engine.check.scrub_operation import DEFAULT_RATE as DEFAULT_RATE
    from reput.engine.check.scrub_operation import ScrubReport as ScrubReport
    from reput.engine.check.scrub_operation import scrub as scrub
else:
    __getattr__, __dir__ = face(__name__)
