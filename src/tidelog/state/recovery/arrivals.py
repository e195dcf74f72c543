"""Which file of the tables that serve already is fetched next, and which tables are whole: pure.

Invariants: every file is handed out once; a table is whole when all of its files have arrived, and
is reported as such once.
"""

from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar

FileT = TypeVar("FileT")
TableT = TypeVar("TableT")


class Arrivals(Generic[FileT, TableT]):
    """Files in the order in which they are added, those that reads have asked for first."""

    def __init__(self) -> None:
        self._waiting: dict[FileT, int] = {}
        """Files that are to be fetched, and how often reads have missed a part of each."""
        self._missing: dict[TableT, set[FileT]] = {}
        """The files that each table lacks."""

    def add(self, table: TableT, files: Iterable[FileT]) -> None:
        """A table serves, and lacks these files; other tables may lack some of them, too."""
        ordered = list(files)
        self._missing[table] = set(ordered)
        for file in ordered:
            self._waiting.setdefault(file, 0)

    def asked(self, files: Mapping[FileT, int]) -> None:
        """Reads have missed so many parts of these files."""
        for file, parts in files.items():
            if file in self._waiting:
                self._waiting[file] += parts

    def next(self) -> FileT | None:
        """The file to fetch now; None: all are handed out."""
        if not self._waiting:
            return None
        file = max(self._waiting, key=self._waiting.__getitem__)
        del self._waiting[file]
        return file

    def arrived(self, file: FileT) -> list[TableT]:
        """The tables that are whole with this file."""
        complete: list[TableT] = []
        for table, missing in list(self._missing.items()):
            missing.discard(file)
            if not missing:
                del self._missing[table]
                complete.append(table)
        return complete

    def leave(self, table: TableT) -> None:
        """A table is closed: what it alone lacks is fetched no more."""
        self._missing.pop(table, None)
        needed: set[FileT] = set().union(*self._missing.values())
        self._waiting = {file: asked for file, asked in self._waiting.items() if file in needed}

    @property
    def is_complete(self) -> bool:
        """Whether all tables are whole."""
        return not self._missing
