"""Write and verify proofs that one message was archived unchanged. Verifying does not need the archive."""

from __future__ import annotations

import hashlib
from pathlib import Path

from reput.core import MessageStore
from reput.errors import FormatError, UsageError
from reput.format import message_proof
from reput.format.archive import LogFile, Manifest, chained, tree_path
from reput.format.commit_log import MessageExt, RecordError, decode
from reput.format.seekable_zstd import FRAME_BYTES
from reput.format.signature import Signature
from reput.io import DISK, Archive, FileReader, Signer
from reput.wings.archive.report import ProvenMessage, VerifyReport

_MOST_PROOF_BYTES = 1 << 28


def prove_message(
    place: str,
    physical_offset: int,
    *,
    output: str | None = None,
    signing_key: str | None = None,
    options: dict[str, str] | None = None,
) -> VerifyReport:
    """Verify one message of an archive, and write its proof, as `reput.verify_archive` specifies."""
    signer = None if signing_key is None else Signer.of(signing_key)
    if output is not None and Path(output).exists():
        raise UsageError(f"{output}: already exists; choose another file", arguments=["proof"])
    archive = Archive(place, options)
    with MessageStore(place, storage_options=options) as store:
        record = store.get_record(physical_offset)
    proof = _proof(archive, physical_offset, len(record))
    data = message_proof.encode_proof(proof)
    signature = None if signer is None else signer.sign(data)
    if output is not None:
        with DISK.writing_to(output):
            DISK.create_durable(Path(output), message_proof.encode_stored_proof(data, signature))
    erased = _erasures(archive.manifest, proof.file)
    return _report(place, proof, signature, archive.path(proof.file.object), erased)


def _proof(archive: Archive, physical_offset: int, size: int) -> message_proof.MessageProof:
    log = archive.manifest.log
    number, file = next(
        (number, file)
        for number, file in enumerate(log)
        if file.begin <= physical_offset < file.end
    )
    start = physical_offset - file.begin
    first, last = start // FRAME_BYTES, -(-(start + size) // FRAME_BYTES)
    digests = archive.directory(file).digests
    frames = tuple(
        message_proof.ProofFrame(frame, content, tree_path(digests, frame))
        for frame, content in enumerate(archive.frames(file, first, last), first)
    )
    return message_proof.MessageProof(
        archive=archive.manifest.id, generation=archive.manifest.generation,
        physical_offset=physical_offset, size=size, frames=frames, file=file,
        before=chained(log[:number], archive.manifest.before), after=log[number + 1 :],
        chain=archive.manifest.chain,
    )  # fmt: skip


def _erasures(manifest: Manifest, file: LogFile) -> tuple[str, ...]:
    return tuple(record.object for record in manifest.erasures if file.begin in record.begins)


def verify_proof(path: str) -> VerifyReport:
    """Verify a proof file.

    Raises:
        FormatError: The file is not a proof of a message.
        StoreAccessError, MissingExtraError.
    """
    with FileReader(path) as reader:
        if reader.size > _MOST_PROOF_BYTES:
            raise FormatError(path, 0, f"has {reader.size:,} bytes, more than a proof can have")
        data = reader.read(0, reader.size)
    try:
        proof, signed, signature = message_proof.decode_stored_proof(data)
    except ValueError as error:
        raise FormatError(path, 0, str(error)) from None
    report = _report(path, proof, signature, path, ())
    if signature is not None and not Signer.has_signed(signed, signature):
        return VerifyReport(path, 1, 1, len(data), ("the signature does not match the proof",))
    return report


def _report(
    place: str, proof: message_proof.MessageProof, signature: Signature | None, path: str, erasures: tuple[str, ...]
) -> VerifyReport:  # fmt: skip
    size = sum(len(frame.content) for frame in proof.frames)
    try:
        record = proof.record()
        message = decode(record)
    except (ValueError, RecordError) as error:
        return VerifyReport(place, 1, 1, size, (f"{path}: {error}",))
    return VerifyReport(
        place, 1, 1, size, message=_proof_of(proof, record, message, signature, erasures)
    )


def _proof_of(
    proof: message_proof.MessageProof, record: bytes, message: MessageExt, signature: Signature | None,
    erasures: tuple[str, ...],
) -> ProvenMessage:  # fmt: skip
    return ProvenMessage(
        message.topic, message.queue_id, message.queue_offset, proof.physical_offset, len(record),
        hashlib.sha256(record).hexdigest(), proof.archive, proof.generation, proof.chain,
        "" if signature is None else signature.public_key, erasures,
    )  # fmt: skip
