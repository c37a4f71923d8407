"""Read, rebuild, check and query the message store of Apache RocketMQ, byte for byte."""

from __future__ import annotations

__version__ = "0.1.0"
