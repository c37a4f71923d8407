"""Rebuilding ConsumeQueue and IndexFile from a CommitLog in parallel: plan, scan, stitch, write, commit.

Everything here is plain functions over small picklable tasks; who runs the tasks (Spark, or one process after
the other) is the caller's affair. See docs/architecture.md for the picture.
"""
