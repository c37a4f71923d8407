"""One connection without its socket: bytes in, requests out; answers in, bytes out."""

from __future__ import annotations

from reput.broker.limits import MOST_FRAME_BYTES
from reput.errors import RemotingError
from reput.remoting.commands import Command
from reput.remoting.frames import FrameReader
from reput.remoting.headers import decode_command, encode_command


class Session:
    """The state of the protocol on one connection.

    Attributes:
        error: why no further bytes can be read; None while they can
    """

    def __init__(self, most_frame_bytes: int = MOST_FRAME_BYTES) -> None:
        self._frames = FrameReader(most_frame_bytes)
        self.error: RemotingError | None = None

    @property
    def buffered_bytes(self) -> int:
        """Bytes that wait for the rest of their frame."""
        return self._frames.buffered_bytes

    def receive(self, data: bytes) -> list[Command]:
        """Return the commands that are whole with these bytes.

        Bytes that are not the protocol's end the connection. Commands before them are returned, however the bytes
        arrive, as a broker's decoder hands them on; then `error` is set.

        Raises RemotingError if no command comes before such bytes.
        """
        commands: list[Command] = []
        try:
            if self.error is not None:
                raise self.error
            for frame in self._frames.feed(data):
                commands.append(decode_command(frame))
        except RemotingError as error:
            self.error = error
            if not commands:
                raise
        return commands

    def send(self, command: Command) -> bytes:
        """The bytes to write for a command. Raises RemotingError."""
        return encode_command(command)
