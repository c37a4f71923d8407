"""Logs as a broker with writeWithoutMmap appends them (DefaultMappedFile.appendMessagesInner, 5.4).

The broker encodes each message into one of its shared buffers, and writes the buffer up to the end of the message's
page. It never clears the buffers. So after the last message, and after each BLANK, a file has bytes of other messages.
"""

from random import Random

from tests.oracle.forge import Files, LogForge, encode_blank

PAGE_BYTES = 4096
_BUFFERS = 4


def appended(forge: LogForge, random: Random, *, to_page: bool = True) -> Files:
    """Return the files of a log, as they are after these appends.

    Args:
        forge: The log. Each of its records is one append.
        random: Chooses the shared buffers.
        to_page: Whether a write continues to the end of the page. The first brokers with this setting wrote the message
            only.
    """
    whole = dict(forge.files())
    size = forge.file_bytes
    blanks = dict(forge.blanks)
    begins = sorted([*forge.offsets, *blanks])
    buffers = [bytearray(size) for _ in range(_BUFFERS)]
    files = {start: bytearray(size) for start in whole}
    for number, begin in enumerate(begins):
        start = begin - begin % size
        at = begin - start
        buffer = random.choice(buffers)
        if begin in blanks:
            head, count = encode_blank(blanks[begin]), size - at
            buffer[: len(head)] = head
        else:
            following = begins[number + 1 :] or [forge.end_offset]
            count = min(following[0] - begin, size - at)
            buffer[:count] = whole[start][at : at + count]
            count += -(at + count) % PAGE_BYTES if to_page else 0
        count = min(count, size - at)
        files[start][at : at + count] = buffer[:count]
    return [(start, bytes(data)) for start, data in files.items()]
