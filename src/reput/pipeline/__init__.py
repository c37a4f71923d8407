"""Rebuild ConsumeQueues and IndexFiles from a CommitLog in parallel: plan, scan, stitch, write, commit.

Everything here consists of plain functions over small picklable tasks; the caller runs the tasks (on Spark, or one
after the other). See docs/architecture.md for the picture.
"""
