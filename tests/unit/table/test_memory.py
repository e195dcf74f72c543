import errno
from pathlib import Path

import pytest

from table.conformance import TableConformance, many_rows, put
from tidelog.errors import StoreFullError
from tidelog.table.memory import MemoryTableFactory


class TestMemoryTable(TableConformance):
    @pytest.fixture
    def factory(self) -> MemoryTableFactory:
        return MemoryTableFactory()


def test_a_full_disk_is_reported_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(path: Path, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    table = MemoryTableFactory().create(tmp_path / "live")
    put(table, many_rows(1))
    monkeypatch.setattr(Path, "write_bytes", no_room)
    with pytest.raises(StoreFullError, match="free disk space"):
        table.snapshot(tmp_path / "snapshot")


def test_equal_content_gives_equal_files_whatever_its_history(tmp_path: Path) -> None:
    content = many_rows(1)
    straight = MemoryTableFactory().create(tmp_path / "straight")
    put(straight, content)
    winding = MemoryTableFactory().create(tmp_path / "winding")
    put(winding, many_rows(2))
    winding.write(sorted(many_rows(2)), [None] * len(many_rows(2)))
    put(winding, content)
    first = straight.snapshot(tmp_path / "1")
    second = winding.snapshot(tmp_path / "2")
    assert [f.name for f in first] == [f.name for f in second]
    assert [f.path.read_bytes() for f in first] == [f.path.read_bytes() for f in second]
