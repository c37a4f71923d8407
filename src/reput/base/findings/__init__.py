"""Damage and doubts in a store, each reported as a `Finding`.

All operations that read, rebuild, export, follow or inspect a store report problems as findings. A finding can be
printed as JSON for programs (`Finding.as_json`, see docs/findings.md) and as one line of text (`str`). Each kind of
finding is defined once, in `Kind`.
"""

from reput.base.findings.finding import Finding
from reput.base.findings.kinds import Kind, Remedy, Repair, Severity

__all__ = ["Finding", "Kind", "Remedy", "Repair", "Severity"]
