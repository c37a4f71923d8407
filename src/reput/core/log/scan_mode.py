"""Define how a walk over the CommitLog handles unreadable bytes, and which settings affect messages' queue entries."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from reput.base import StoreConfig


@dataclass(frozen=True, slots=True)
class ScanMode:
    """How a walk handles unreadable bytes, and which fields of records it takes.

    salvage       if true, resume at the next verifiable record of the file; if false, skip the rest of the file
    is_growing    stop at zeros in place of a record: it is not written yet, so do not search for a later record
    looks_behind  if the walk ends at unreadable bytes, examine the bytes that follow, to set `data_follows` and `torn`
    places_only   take only the places of records, not their keys and tags
    in_place      treat records that state another physical offset than their place as damage. They belong to another
                  file: readers must neither return them nor take their range for empty

    BROKER        the walk of the broker's reput service (DefaultMessageStore.ReputMessageService, 4.9.3)
    GROWING       a walk by the broker's rules, over a log to which a broker may be appending
    UP_TO_DAMAGE  a walk by the broker's rules, for a caller that stops at the first damage
    READER        the walk of readers, whose answers must name what they could not read

    The other modes combine these: SALVAGE resumes after damage, PLACES takes only places.
    """

    BROKER: ClassVar[ScanMode]
    SALVAGE: ClassVar[ScanMode]
    GROWING: ClassVar[ScanMode]
    UP_TO_DAMAGE: ClassVar[ScanMode]
    PLACES: ClassVar[ScanMode]
    GROWING_PLACES: ClassVar[ScanMode]
    READER: ClassVar[ScanMode]
    READER_SALVAGE: ClassVar[ScanMode]
    READER_PLACES: ClassVar[ScanMode]
    GROWING_READER: ClassVar[ScanMode]
    GROWING_READER_PLACES: ClassVar[ScanMode]
    READER_UP_TO_DAMAGE: ClassVar[ScanMode]

    salvage: bool = False
    is_growing: bool = False
    looks_behind: bool = True
    places_only: bool = False
    in_place: bool = False


ScanMode.BROKER = ScanMode()
ScanMode.SALVAGE = ScanMode(salvage=True)
ScanMode.GROWING = ScanMode(is_growing=True)
ScanMode.UP_TO_DAMAGE = ScanMode(looks_behind=False)
ScanMode.PLACES = ScanMode(salvage=True, places_only=True)
ScanMode.GROWING_PLACES = replace(ScanMode.PLACES, is_growing=True)
ScanMode.READER = replace(ScanMode.BROKER, in_place=True)
ScanMode.READER_SALVAGE = replace(ScanMode.SALVAGE, in_place=True)
ScanMode.READER_PLACES = replace(ScanMode.PLACES, in_place=True)
ScanMode.GROWING_READER = replace(ScanMode.READER_SALVAGE, is_growing=True)
ScanMode.GROWING_READER_PLACES = replace(ScanMode.GROWING_PLACES, in_place=True)
ScanMode.READER_UP_TO_DAMAGE = replace(ScanMode.UP_TO_DAMAGE, in_place=True)


@dataclass(frozen=True, slots=True)
class DispatchRules:
    """The settings that affect messages' queue entries and index entries. The defaults are those of a 4.9 broker.

    The settings affect tags codes of SCHEDULE_TOPIC_XXXX, entries in queues that INNER_MULTI_DISPATCH names, and index
    entries for tags. They do not affect the places and keys of records.

    delays_ms       delay of each level in ms, level 1 first (messageDelayLevel)
    multi_dispatch  whether INNER_MULTI_DISPATCH leads to further queues (enableMultiDispatch)
    lmq             whether further queues named %LMQ%... have queue id 0 (enableLmq)
    checks_topic    whether INNER_MULTI_DISPATCH is ignored in messages of retry and system topics (5.x)
    tags_from       physical offset from which messages also have an index entry for their tags (5.4); None for no
                    message
    """

    delays_ms: tuple[int, ...] = tuple(StoreConfig().delay_table_ms())
    multi_dispatch: bool = False
    lmq: bool = False
    checks_topic: bool = False
    tags_from: int | None = None

    @classmethod
    def of(cls, config: StoreConfig) -> DispatchRules:
        return cls(
            tuple(config.delay_table_ms()), config.enable_multi_dispatch, config.enable_lmq,
            checks_topic=config.is_five, tags_from=config.index_tags_from,
        )  # fmt: skip


DEFAULT_RULES = DispatchRules()
