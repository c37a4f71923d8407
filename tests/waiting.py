"""Wait for what other threads and processes do. Only the timeout of pytest ends a wait that is in vain."""

import asyncio
import subprocess
import time
from collections.abc import Callable
from typing import Any

_PAUSE_S = 0.01


def wait_for(condition: Callable[..., Any], process: "subprocess.Popen[Any] | None" = None) -> Any:
    """Return the first true result of a condition. Fail if a process ends before."""
    while not (result := condition()):
        if process is not None:
            assert process.poll() is None, process.communicate()
        time.sleep(_PAUSE_S)
    return result


async def wait_in_loop(condition: Callable[[], Any]) -> None:
    """Wait until a condition is true, while the event loop of the caller runs."""
    while not condition():
        await asyncio.sleep(_PAUSE_S)
