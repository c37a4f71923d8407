"""Convert the bytes of one connection to requests, and answers to bytes, without a socket."""

from __future__ import annotations

from reput.errors import RemotingError
from reput.wings.serve.broker.limits import Limits
from reput.wings.serve.remoting.commands import Command
from reput.wings.serve.remoting.frames import FrameReader
from reput.wings.serve.remoting.headers import decode_command, encode_command, encode_head


class Session:
    """The state of the protocol on one connection.

    Attributes:
        error: The error after which no further bytes can be read, or None.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        limits = limits or Limits()
        self.error: RemotingError | None = None
        self._most_fields = limits.header_fields
        self._frames = FrameReader(limits.frame_bytes, limits.header_bytes)

    @property
    def buffered_bytes(self) -> int:
        """Number of received bytes that were not returned as commands yet."""
        return self._frames.buffered_bytes

    @property
    def has_command(self) -> bool:
        """Whether `next` would return a command. Raises as `next` does."""
        return self._frames.has_frame

    def feed(self, data: bytes) -> None:
        """Add received bytes."""
        self._frames.feed(data)

    def next(self) -> Command | None:
        """Return the next command, or None if it has not arrived completely.

        Raises RemotingError for bytes that violate the protocol. The connection cannot be used any further.
        """
        if self.error is not None:
            raise self.error
        try:
            frame = self._frames.next()
            if frame is None:
                return None
            command = decode_command(frame)
            if len(command.fields) > self._most_fields:
                raise RemotingError(
                    f"malformed header: {len(command.fields)} fields, but at most {self._most_fields} are allowed"
                )
            return command
        except RemotingError as error:
            self.error = error
            raise

    def receive(self, data: bytes) -> list[Command]:
        """Return the commands that are complete with these bytes.

        If some of the bytes violate the protocol, the commands before the violation are returned, and `error` is set.
        Raises RemotingError if there is no command before it.
        """
        self.feed(data)
        commands: list[Command] = []
        try:
            commands.extend(iter(self.next, None))
        except RemotingError:
            if not commands:
                raise
        return commands

    def send_head(self, command: Command) -> bytes:
        """Return the bytes to write for a command before its body. Raises RemotingError."""
        return encode_head(command)

    def send(self, command: Command) -> bytes:
        """Return the bytes to write for a command. Any thread may call this. Raises RemotingError."""
        return encode_command(command)
