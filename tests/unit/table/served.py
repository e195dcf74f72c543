"""A factory whose restored tables begin as placeholders, filled from a directory beside them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tidelog.errors import CorruptObjectError
from tidelog.table.failures import corrupt
from tidelog.table.holes import ANYWHERE, Hole, footer_last, make_placeholder, write_parts
from tidelog.table.hydrating import HydratingTable
from tidelog.table.rocksdb import SNAPSHOT_NAME
from tidelog.table.rocksdb_factory import RocksTableFactory
from tidelog.table.sst_tail import tail_start


@dataclass
class LocalHoles:
    """The holes of a table in `directory`, whose whole files are in `source`."""

    source: Path
    directory: Path
    filled: list[Hole] = field(default_factory=list)
    whole: set[str] = field(default_factory=set)

    def fill(self, holes: Sequence[Hole], ahead: int) -> None:
        if ANYWHERE in holes:
            self.fill_all()
        for hole in holes:
            self.filled.append(hole)
            if hole is ANYWHERE or hole.file in self.whole:
                continue
            data = (self.source / hole.file).read_bytes()
            if hole.offset is None:
                start = tail_start(data, len(data)) or 0
                write_parts(self.directory / hole.file, footer_last(start, data[start:]))
            else:
                end = hole.offset + max(hole.length, ahead)
                write_parts(
                    self.directory / hole.file, footer_last(hole.offset, data[hole.offset : end])
                )

    def damage(self, hole: Hole, problem: str) -> CorruptObjectError | None:
        return (
            None
            if hole is ANYWHERE or hole.file in self.whole
            else corrupt(hole.file, "what was written", problem)
        )

    def fill_all(self) -> None:
        for path in self.source.glob("*.sst"):
            write_parts(self.directory / path.name, footer_last(0, path.read_bytes()))
            self.whole.add(path.name)


@dataclass
class ServingFactory(RocksTableFactory):
    """Opens restored tables over placeholders, with the tails of all files or with none."""

    has_tails: bool = False
    holes: LocalHoles = field(init=False)
    """Of the table that was restored last."""

    def __init__(self, *args: object, has_tails: bool = False) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self.has_tails = has_tails

    def restore(self, directory: Path) -> HydratingTable:
        source = directory.with_name(f"{directory.name}-source")
        directory.rename(source)
        directory.mkdir()
        if (source / SNAPSHOT_NAME).exists():
            (source / SNAPSHOT_NAME).rename(directory / SNAPSHOT_NAME)
        self.holes = LocalHoles(source, directory)
        for path in source.glob("*.sst"):
            make_placeholder(directory / path.name, path.stat().st_size)
            if self.has_tails:
                self.holes.fill([Hole(path.name, None, 0)], 0)
        self.holes.filled.clear()
        assert self.serve is not None
        return self.serve(directory, self.holes, self.has_tails)
