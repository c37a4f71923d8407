"""What a run of a follower found and did."""

from __future__ import annotations

from dataclasses import dataclass, field

from reput.findings import Finding
from reput.notebook import ShownAsTable


@dataclass(slots=True)
class FollowReport(ShownAsTable):
    """What was found and done since the start. Offsets are physical.

    log_begin    where the followed log begins now
    compared_from  messages from here on were compared with the indexes at the start
    position     the indexes have every message before it
    messages, keys  dispatched by this run; its start repeats a few
    expired_files  files of the indexes that were deleted because their messages have expired
    """

    log_begin: int = 0
    compared_from: int = 0
    position: int = 0
    messages: int = 0
    keys: int = 0
    expired_files: int = 0
    damage: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
