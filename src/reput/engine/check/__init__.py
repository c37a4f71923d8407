"""Inspect the files of a store, check that they match each other, prove what indexes cover, and repair."""

from typing import TYPE_CHECKING

from reput.base import face

if TYPE_CHECKING:
    from reput.engine.check.checking.checkpoint import CheckpointInspection as CheckpointInspection
    from reput.engine.check.checking.checkpoint import inspect_checkpoint as inspect_checkpoint
    from reput.engine.check.index_inspection import IndexInspection as IndexInspection
    from reput.engine.check.index_inspection import inspect_index_file as inspect_index_file
    from reput.engine.check.index_inspection import slots_by_chain_length as slots_by_chain_length
    from reput.engine.check.operation import CheckReport as CheckReport
    from reput.engine.check.operation import check as check
    from reput.engine.check.operation import check_header as check_header
    from reput.engine.check.operation import finding_fields as finding_fields
    from reput.engine.check.operation import finding_lines as finding_lines
    from reput.engine.check.operation import repair_command as repair_command
    from reput.engine.check.proofs import proofs_of as proofs_of
    from reput.engine.check.prove_operation import ProofReport as ProofReport
    from reput.engine.check.prove_operation import prove as prove
    from reput.engine.check.repair_operation import RepairReport as RepairReport
    from reput.engine.check.repair_operation import UndoReport as UndoReport
    from reput.engine.check.repair_operation import prepare_repair as prepare_repair
    from reput.engine.check.repair_operation import repair as repair
    from reput.engine.check.repair_operation import undo_repair as undo_repair
    from reput.engine.check.repairing.plan import Plan as Plan
    from reput.engine.check.run import CHECK_SCHEMA as CHECK_SCHEMA
    from reput.engine.check.run import check_store as check_store
    from reput.engine.check.scrub_operation import DEFAULT_RATE as DEFAULT_RATE
    from reput.engine.check.scrub_operation import scrub as scrub
else:
    __getattr__, __dir__ = face(__name__)
