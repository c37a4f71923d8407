"""A view of a folder has links to the folder's files. Links in the folder are not followed."""

import os
from pathlib import Path

from reput.io.rocksdb import FolderView


def test_a_view_links_to_the_files_of_a_folder_and_follows_no_link(tmp_path: Path) -> None:
    folder, secret = tmp_path / "folder", tmp_path / "secret"
    (folder / "below").mkdir(parents=True)
    secret.write_text("secret")
    (folder / "file").write_text("content")
    (folder / "LOCK").touch()
    (folder / "link").symlink_to(secret)
    view = FolderView(str(folder), without=("LOCK",))
    assert os.listdir(view.path) == ["file"]
    assert Path(view.path, "file").read_text() == "content"
    view.close()
    assert not os.path.exists(view.path)
    assert sorted(os.listdir(folder)) == ["LOCK", "below", "file", "link"]
