"""Tools for the tests of other projects.

broker          a broker and name server in the process of the tests
fixtures        fixtures of pytest that start one
builders        a message, a CommitLog of messages
strategies      hypothesis strategies: hosts, texts, whole messages
forgetful_disk  a disk that loses unsynced data when the power is cut
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reput.testing.broker import Broker

__all__ = ["Broker"]


def __getattr__(name: str) -> Any:
    if name == "Broker":  # it brings the server and the kernels
        from reput.testing.broker import Broker

        return Broker
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
