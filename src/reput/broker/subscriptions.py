"""How each group consumes (`SubscriptionGroupManager`, `SubscriptionGroupConfig`, tag rocketmq-all-4.9.3).

Groups of config/subscriptionGroup.json are as it says; every other group is there as soon as it is asked for, with a
broker's defaults.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reput.broker.config_file import ConfigFile
from reput.errors import FormatError
from reput.format.file_names import SUBSCRIPTION_GROUP_FILE


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """What a group may do, and how often a message is retried before it becomes a dead letter."""

    name: str
    may_consume: bool = True
    may_broadcast: bool = True
    retry_queues: int = 1
    most_retries: int = 16

    def as_json(self) -> dict[str, Any]:
        """As clients have it."""
        return {
            "brokerId": 0,
            "consumeBroadcastEnable": self.may_broadcast,
            "consumeEnable": self.may_consume,
            "consumeFromMinEnable": True,
            "groupName": self.name,
            "notifyConsumerIdsChangedEnable": True,
            "retryMaxTimes": self.most_retries,
            "retryQueueNums": self.retry_queues,
            "whichBrokerWhenConsumeSlowly": 1,
        }

    @classmethod
    def of_json(cls, name: str, found: dict[str, Any]) -> GroupConfig:
        """Raises ValueError, TypeError, AttributeError for what cannot be one."""
        return cls(
            name,
            bool(found.get("consumeEnable", True)),
            bool(found.get("consumeBroadcastEnable", True)),
            min(max(int(found.get("retryQueueNums", 1)), 0), 1024),
            int(found.get("retryMaxTimes", 16)),
        )


class SubscriptionGroups:
    """The groups of one store."""

    def __init__(self, store: Path) -> None:
        """Raises StoreAccessError, FormatError."""
        file = ConfigFile(store, SUBSCRIPTION_GROUP_FILE, is_kept=False)
        table = file.load().get("subscriptionGroupTable") or {}
        try:
            self._known = {name: GroupConfig.of_json(name, each) for name, each in table.items()}
        except (ValueError, TypeError, AttributeError):
            raise FormatError(file.path, 0, "not a table of groups") from None

    def get(self, group: str) -> GroupConfig:
        """A group."""
        return self._known.get(group) or GroupConfig(group)

    def known(self) -> list[GroupConfig]:
        """Those of the file."""
        return list(self._known.values())
