"""Tools for the tests of projects that use RocketMQ.

broker            a broker and name server that runs in the test process
fixtures          pytest fixtures that start such a broker
builders          build a message, and a CommitLog with given messages
strategies        Hypothesis strategies: hosts, texts, whole messages
forgetful_disk    simulates a disk that loses unsynced data in a power cut
faulty_files      simulates failing and slow system calls
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reput.testing.broker import Broker

__all__ = ["Broker"]


def __getattr__(name: str) -> Any:
    if name == "Broker":  # Imported late, because it loads the server and the kernels.
        from reput.testing.broker import Broker

        return Broker
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
