"""One connection without its socket: bytes in, requests out; answers in, bytes out."""

from __future__ import annotations

from reput.broker.limits import MOST_FRAME_BYTES
from reput.remoting.commands import Command
from reput.remoting.frames import FrameReader
from reput.remoting.headers import decode_command, encode_command


class Session:
    """The state of the protocol on one connection."""

    def __init__(self, most_frame_bytes: int = MOST_FRAME_BYTES) -> None:
        self._frames = FrameReader(most_frame_bytes)

    @property
    def buffered_bytes(self) -> int:
        """Bytes that wait for the rest of their frame."""
        return self._frames.buffered_bytes

    def receive(self, data: bytes) -> list[Command]:
        """The commands that are whole with these bytes.

        Raises RemotingError for bytes that are not the protocol's; the connection cannot be used any further.
        """
        return [decode_command(frame) for frame in self._frames.feed(data)]

    def send(self, command: Command) -> bytes:
        """The bytes to write for a command. Raises RemotingError."""
        return encode_command(command)
