"""Damage and doubts in a store, one `Finding` each, from every source.

Reading, rebuilding, exporting, following and inspecting a store report problems in this one form, to programs
(`Finding.as_json`, documented in docs/findings.md) and as one line of text (`str`). Each kind of finding is defined
once, in `Kind`.
"""

from reput.findings.finding import Finding
from reput.findings.kinds import Kind, Remedy, Severity

__all__ = ["Finding", "Kind", "Remedy", "Severity"]
