from __future__ import annotations

import os
from pathlib import Path

import pytest
from rltraining.whole_file import whole, write_whole


def test_what_was_there_stays_until_all_is_written(tmp_path: Path) -> None:
    path = tmp_path / "new" / "page.html"
    write_whole(path, "before")
    with pytest.raises(ValueError, match="in the middle"), whole(path) as fresh:  # noqa: PT012 - of the second
        fresh.write_text("half")
        raise ValueError("in the middle")
    assert [(each.name, each.read_text()) for each in path.parent.iterdir()] == [("page.html", "before")]


def test_a_link_stays_one_and_what_it_leads_to_is_written(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("file")
    write_whole(tmp_path / "link", "é")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_bytes() == "é".encode()


def test_what_is_no_file_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    """For root, --output /dev/null would replace the machine's device. /dev/stdout may be a pipe."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    opened = os.open(pipe, os.O_RDWR)  # so that neither end blocks on the other
    read, write = os.pipe()
    for path, end in ((pipe, opened), (Path(f"/dev/fd/{write}"), read)):
        write_whole(path, b"content")
        assert os.read(end, 100) == b"content"
    assert pipe.is_fifo()
    for end in (opened, read, write):
        os.close(end)
