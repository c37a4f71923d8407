"""Change the files and folders of this machine: one object with all verbs.

`reput.io.anchors` explains what protects a command that runs as root while it writes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from reput.io import anchors, copies, reader, writer


class LocalDisk:
    """The disk of this machine. If the operating system refuses, a method raises StoreAccessError.

    Names of new, renamed and deleted files are durable after `sync_folder`. `Disk` is the disk of a store that this
    process owns; tests replace it by one that fails.
    """

    # Hold folders open, so that no other user leads this process to files elsewhere.
    anchored = staticmethod(anchors.anchored)
    reading_for = staticmethod(anchors.reading_for)
    writing_to = staticmethod(anchors.writing_to)
    writing_into = staticmethod(anchors.writing_into)
    real_path = staticmethod(anchors.real_path)
    native = staticmethod(anchors.native)
    native_folder = staticmethod(anchors.native_folder)
    give = staticmethod(anchors.give)
    refuse_links = staticmethod(anchors.refuse_links)
    make_own_folder = staticmethod(anchors.make_own_folder)
    is_own_folder = staticmethod(anchors.is_own_folder)

    # Create, replace, rename and delete.
    create_folder = staticmethod(writer.make_folder)
    new_folder = staticmethod(writer.new_folder)
    write_durable = staticmethod(writer.write_durable)
    create_durable = staticmethod(writer.create_durable)
    create_part = staticmethod(writer.open_part)
    write_chunks = staticmethod(writer.write_chunks)
    appending = staticmethod(writer.appending)
    append_line = staticmethod(writer.append_line)
    replacing = staticmethod(writer.replacing)
    put_in_place = staticmethod(writer.put_in_place)
    rename = staticmethod(writer.rename)
    link = staticmethod(writer.link)
    exchange = staticmethod(writer.exchange)
    exchange_at_once = staticmethod(writer.exchange_at_once)
    delete = staticmethod(writer.delete)
    remove_tree = staticmethod(writer.remove_tree)

    # Make durable.
    sync_file = staticmethod(writer.sync_file)
    sync_folder = staticmethod(writer.sync_folder)
    sync_tree = staticmethod(writer.sync_tree)

    # Look at files, and make copies that look the same.
    check_in_place = staticmethod(reader.check_in_place)
    inode_of = staticmethod(copies.inode_of)
    shares_parent_s_disk = staticmethod(copies.shares_parent_s_disk)
    tree_entries = staticmethod(copies.tree_entries)
    copy_file = staticmethod(copies.copy_file)
    look_like = staticmethod(copies.look_like)
    own_like = staticmethod(copies.own_like)

    @contextmanager
    def calling(self, system: Any) -> Iterator[None]:
        """During the `with` block, let files be read and written through `system` in place of the module `os`."""
        modules: tuple[Any, ...] = (anchors, reader, writer)
        try:
            for module in modules:
                module.os = system
            yield
        finally:
            for module in modules:
                module.os = os


DISK = LocalDisk()
