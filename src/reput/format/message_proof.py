"""The proof that an archive contains a message unchanged. It can be verified without the archive.

    record ─▶ frames of 64 KiB ─▶ hash tree of the log file ─▶ the file's entry ─▶ chain of the manifest ─▶ signature

The chain is a hash chain over the manifest's entries of all log files (`reput.format.archive.chained`).

A proof contains the frames with the record, and the path from each frame to the root of the tree. It also contains the
entry of the log file, the link of the chain before this file, and the entries of later files. The signature covers the
JSON bytes of the proof as they are stored.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import msgspec

from reput.format.archive import LogFile, linked, root_above
from reput.format.seekable_zstd import FRAME_BYTES
from reput.format.signature import Signature, decode_signed, encode_signed

PROOF_FORM = 1


class ProofFrame(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A frame of a log file.

    Attributes:
        number: number of the frame, counted from the beginning of the file
        content: the broker's bytes in this frame
        path: SHA-256 of the sibling nodes between leaf and root, from the leaf up
    """

    number: int
    content: bytes
    path: tuple[str, ...]


class MessageProof(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The proof that an archive contains a message.

    Attributes:
        archive: id of the archive
        generation: generation of its manifest
        physical_offset, size: place and size of the record
        frames: the frames that contain the record
        file: the manifest's entry for the log file that contains the record
        before: link of the manifest's hash chain before this file; empty for the first file
        after: the manifest's entries for the later log files
        chain: last link of the hash chain, as in the manifest
    """

    reput_proof: int = PROOF_FORM
    archive: str
    generation: int
    physical_offset: int
    size: int
    frames: tuple[ProofFrame, ...]
    file: LogFile
    before: str
    after: tuple[LogFile, ...]
    chain: str

    def record(self) -> bytes:
        """Return the record that the proof contains, if the proof is valid.

        Raises:
            ValueError: the proof is invalid; the message states the reason.
        """
        start, end = (
            self.physical_offset - self.file.begin,
            self.physical_offset - self.file.begin + self.size,
        )
        numbers = list(range(start // FRAME_BYTES, -(-end // FRAME_BYTES)))
        if (
            not 0 <= start < end <= self.file.data_bytes
            or [one.number for one in self.frames] != numbers
        ):
            raise ValueError("the proof's frames do not contain the record")
        # These checks show that the record belongs to `chain`. Only a signature can show that `chain` is genuine.
        for frame in self.frames:
            digest = hashlib.sha256(frame.content).digest()
            # Only the last frame of a file may be shorter.
            expected = min(FRAME_BYTES, self.file.data_bytes - frame.number * FRAME_BYTES)
            if len(frame.content) != expected:
                raise ValueError(f"frame {frame.number} is not {expected:,} bytes long")
            if root_above(digest, frame.number, self.file.frames, frame.path) != self.file.tree:
                raise ValueError(f"frame {frame.number} is not in the hash tree of its log file")
        if chain_of(self.before, (self.file, *self.after)) != self.chain:
            raise ValueError("the proof's log file is not in the archive's hash chain")
        data = b"".join(frame.content for frame in self.frames)
        # From here on, positions count from the beginning of the first frame.
        start -= numbers[0] * FRAME_BYTES
        return data[start : start + self.size]


def chain_of(before: str, files: Iterable[LogFile]) -> str:
    """Return the hash chain's link after these files, given the link `before` them.

    Raises ValueError if `before` does not consist of hexadecimal digits.
    """
    link = bytes.fromhex(before)
    for file in files:
        link = linked(link, file)
    return link.hex()


def encode_proof(proof: MessageProof) -> bytes:
    """Return a proof as JSON. These bytes are signed."""
    return msgspec.json.encode(proof)


def encode_stored_proof(proof: bytes, signature: Signature | None) -> bytes:
    """Return the content of a proof file."""
    return encode_signed("proof", proof, signature)


def decode_stored_proof(data: bytes) -> tuple[MessageProof, bytes, Signature | None]:
    """Return three values: a stored proof, its JSON bytes, and the signature of these bytes. Raises ValueError."""
    found, raw, signature = decode_signed(data, "proof", MessageProof, "the proof of a message")
    if found.reput_proof != PROOF_FORM:
        raise ValueError(f"proof format {found.reput_proof} is not known; update reput")
    return found, raw, signature
