"""The rows of one key group over pages that Spark keeps: what is looked for is read, and no more.

Invariants: a page is read at most once, before any of its rows is; what was written reaches the
pages in `store`, and only pages with a change are written. The tree is that of `layout`.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import chain, islice, pairwise
from operator import itemgetter
from typing import Final, NamedTuple, Protocol

from tidelog.spark.operators.layout import PAGE_BYTES, Row, pack, unpack
from tidelog.table.memory import MemoryTable

_first_entry: Final = itemgetter(0)
_GROUP_BYTES: Final = 2
_END: Final[Row] = (b"", b"")
_FULL_BYTES: Final = 2 * PAGE_BYTES
"""A page that takes more is divided."""


class PageStore(Protocol):
    """Where the pages of the key group are."""

    def read(self, number: int) -> bytes: ...

    def write(self, number: int, page: bytes) -> None: ...

    def remove(self, number: int) -> None: ...


class Tree(NamedTuple):
    """The root of the pages; `next_number` is that of the next new page."""

    depth: int = 0
    root: bytes = b""
    next_number: int = 0


class PagedTable(MemoryTable):
    """A table in memory of the rows that were looked for, and of those that were written."""

    def __init__(self, group: bytes, tree: Tree, pages: PageStore) -> None:
        super().__init__()
        self._group = group
        self._pages = pages
        self._depth = tree.depth
        self._next_number = tree.next_number
        self._root = unpack(tree.root) if tree.root else []
        """Rows, or with a depth references."""
        self._references: dict[int, list[Row]] = {}
        """The pages of references that were read."""
        self._read: set[int] = set()
        """The pages of rows that were read."""
        self._changed: set[bytes] = set()
        """Entries that were written."""
        if not self._depth:
            self._add(self._root)

    def get(self, key: bytes) -> bytes | None:
        if self._depth:
            self._read_page(key)
        return super().get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        if self._depth:
            for key in set(keys):
                self._read_page(key)
        return super().get_many(keys)

    def write(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        if self._depth:
            for key in keys:
                self._read_page(key)
        super().write(keys, values)
        self._changed.update([key[_GROUP_BYTES:] for key in keys])

    def scan(self, lower: bytes, upper: bytes | None) -> Iterator[Row]:
        """Page by page: of the pages that follow the caller may need none."""
        if not self._depth:
            return super().scan(lower, upper)
        return self._scan_pages(lower, upper)

    def rows_here(self, prefix: bytes, upper: bytes) -> list[Row]:
        """The rows of a range that are in memory already."""
        return list(super().scan(prefix, upper))

    @property
    def changed_rows(self) -> int:
        """Rows that were written since the pages were stored."""
        return len(self._changed)

    def read_some(self, pages: int, choice: int) -> None:
        """Read so many pages of rows, from one on that `choice` selects: any number."""
        first, references, depth = b"", self._root, self._depth
        while depth and references:
            choice, index = divmod(choice, len(references))
            first, depth = references[index][0], depth - 1
            references = self._page(_number(references[index])) if depth else []
        leaves = self._leaves(self._root, self._depth, first, None) if self._depth else ()
        for reference in islice(leaves, pages):
            self._add_page(_number(reference))

    def store(self) -> Tree:
        """Bring what was written to the pages; the root, which the caller stores."""
        if not self._changed:
            return Tree(self._depth, pack(self._root) if self._root else b"", self._next_number)
        changed = sorted(self._changed)
        self._changed.clear()
        if self._depth:
            pages = self._renewed(self._root, self._depth, b"", None, changed)
        else:
            pages = self._rows_between(b"", None)
        while len(parts := _divided(pages)) > 1:
            pages = self._numbered(parts, b"", None, leaf=not self._depth)
            self._depth += 1
        while self._depth and len(pages) <= 1:
            pages = self._collapsed(pages)
        self._root = pages
        return Tree(self._depth, pack(pages) if pages else b"", self._next_number)

    def _collapsed(self, references: list[Row]) -> list[Row]:
        """What the only page that a root refers to has, which becomes the root."""
        self._depth -= 1
        if not references:
            return []
        number = _number(references[0])
        if self._depth:
            page = self._page(number)
        else:
            self._add_page(number)
            page = self._rows_between(b"", None)
        self._pages.remove(number)
        self._references.pop(number, None)
        self._read.discard(number)
        return page

    def _renewed(
        self,
        references: list[Row],
        depth: int,
        lower: bytes,
        upper: bytes | None,
        changed: list[bytes],
    ) -> list[Row]:
        """References in place of these, of which pages have the changed entries."""
        renewed: list[Row] = []
        firsts = [lower, *map(_first_entry, references[1:])]
        start = 0
        for reference, first, end in zip(references, firsts, [*firsts[1:], upper], strict=True):
            stop = len(changed) if end is None else bisect_left(changed, end, start)
            if stop == start:
                renewed.append(reference)
                continue
            entries, start = changed[start:stop], stop
            number = _number(reference)
            if depth > 1:
                rows = self._renewed(self._page(number), depth - 1, first, end, entries)
            else:
                rows = self._rows_between(first, end)
            renewed += self._numbered(_divided(rows), first, number, leaf=depth == 1)
        if renewed:
            renewed[0] = (lower, renewed[0][1])
        return renewed

    def _numbered(
        self, parts: list[list[Row]], first: bytes, number: int | None, *, leaf: bool
    ) -> list[Row]:
        """References to pages of these parts, which are written; the first keeps the number."""
        references: list[Row] = []
        if not parts and number is not None:
            self._pages.remove(number)
            self._references.pop(number, None)
        for part in parts:
            if number is None:
                number, self._next_number = self._next_number, self._next_number + 1
            self._pages.write(number, pack(part))
            if leaf:
                self._read.add(number)
            else:
                self._references[number] = part
            references.append((first if not references else part[0][0], number.to_bytes(4, "big")))
            number = None
        return references

    def _scan_pages(self, lower: bytes, upper: bytes | None) -> Iterator[Row]:
        end = None if upper is None else upper[_GROUP_BYTES:]
        leaves = self._leaves(self._root, self._depth, lower[_GROUP_BYTES:], end)
        start = lower
        for reference, (following, _) in pairwise(chain(leaves, (_END,))):
            self._add_page(_number(reference))
            stop = self._group + following if following else upper
            yield from super().scan(start, stop)
            start = stop or b""

    def _leaves(
        self, references: list[Row], depth: int, lower: bytes, upper: bytes | None
    ) -> Iterator[Row]:
        """References to the pages of rows that have a range."""
        start = max(0, bisect_right(references, lower, key=_first_entry) - 1)
        for index, reference in enumerate(references[start:]):
            if index and upper is not None and reference[0] >= upper:
                return
            if depth == 1:
                yield reference
            else:
                yield from self._leaves(self._page(_number(reference)), depth - 1, lower, upper)

    def _read_page(self, key: bytes) -> None:
        """Read the page of rows that a row is in, if it is in any."""
        entry, references, depth = key[_GROUP_BYTES:], self._root, self._depth
        while references:
            index = max(0, bisect_right(references, entry, key=_first_entry) - 1)
            number = _number(references[index])
            if depth == 1:
                self._add_page(number)
                return
            references, depth = self._page(number), depth - 1

    def _add_page(self, number: int) -> None:
        if number not in self._read:
            self._read.add(number)
            self._add(unpack(self._pages.read(number)))

    def _page(self, number: int) -> list[Row]:
        """A page of references."""
        if number not in self._references:
            self._references[number] = unpack(self._pages.read(number))
        return self._references[number]

    def _add(self, rows: list[Row]) -> None:
        group = self._group
        super().write([group + entry for entry, _ in rows], [value for _, value in rows])

    def _rows_between(self, lower: bytes, upper: bytes | None) -> list[Row]:
        """The rows in memory, as entries."""
        end = None if upper is None else self._group + upper
        rows = super().scan(self._group + lower, end)
        return [(key[_GROUP_BYTES:], value) for key, value in rows]


def _number(reference: Row) -> int:
    return int.from_bytes(reference[1], "big")


def _divided(rows: list[Row]) -> list[list[Row]]:
    """Rows in parts of about a page; none for no rows."""
    sizes = [len(entry) + len(value) + 4 for entry, value in rows]
    total = sum(sizes)
    if total <= _FULL_BYTES or len(rows) == 1:
        return [rows] if rows else []
    limit = total / round(total / PAGE_BYTES)
    parts: list[list[Row]] = [[]]
    filled = 0
    for row, size in zip(rows, sizes, strict=True):
        if parts[-1] and filled + size > limit:
            parts.append([])
            filled = 0
        parts[-1].append(row)
        filled += size
    return parts
