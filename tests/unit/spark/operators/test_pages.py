"""Rows over pages: what was written is read, page by page, and only changed pages are written."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.spark.operators.layout import PAGE_BYTES, pack, unpack
from tidelog.spark.operators.pages import PagedTable, Tree

GROUP = b"\x00\x07"


class Pages(dict[int, bytes]):
    """Pages, and the numbers of those that were read and written."""

    def __init__(self) -> None:
        super().__init__()
        self.was_read: list[int] = []
        self.was_written: list[int] = []

    def read(self, number: int) -> bytes:
        self.was_read.append(number)
        return self[number]

    def write(self, number: int, page: bytes) -> None:
        self.was_written.append(number)
        self[number] = page

    def remove(self, number: int) -> None:
        del self[number]


def row(number: int) -> bytes:
    return GROUP + b"\x00\x01" + number.to_bytes(4, "big")


def stored(pages: Pages, tree: Tree, rows: dict[bytes, bytes | None]) -> Tree:
    table = PagedTable(GROUP, tree, pages)
    table.write(list(rows), list(rows.values()))
    return table.store()


def numbers_of(pages: Pages, tree: Tree) -> set[int]:
    """The numbers of all pages that a tree has."""
    level = [unpack(tree.root)] if tree.depth else []
    numbers: set[int] = set()
    for depth in range(tree.depth, 0, -1):
        found = [int.from_bytes(number, "big") for page in level for _, number in page]
        numbers.update(found)
        level = [unpack(pages[number]) for number in found] if depth > 1 else []
    return numbers


changes = st.dictionaries(
    st.integers(0, 400).map(row), st.none() | st.integers(0, 3 * PAGE_BYTES).map(bytes), max_size=60
)


@settings(max_examples=60, deadline=None)
@given(st.lists(changes, max_size=8), st.integers(0, 400), st.integers(0, 400))
def test_a_table_has_what_was_written_however_often_it_is_stored(
    steps: list[dict[bytes, bytes | None]], one: int, other: int
) -> None:
    pages, tree, expected = Pages(), Tree(), dict[bytes, bytes]()
    for rows in steps:
        tree = stored(pages, tree, rows)
        expected.update({key: value for key, value in rows.items() if value is not None})
        for key in [key for key, value in rows.items() if value is None]:
            expected.pop(key, None)
        assert set(pages) == numbers_of(pages, tree)
        assert list(PagedTable(GROUP, tree, pages).scan(b"", None)) == sorted(expected.items())
        lower, upper = sorted((row(one), row(other)))
        between = [(k, v) for k, v in sorted(expected.items()) if lower <= k < upper]
        assert list(PagedTable(GROUP, tree, pages).scan(lower, upper)) == between
        reader = PagedTable(GROUP, tree, pages)
        assert reader.get(row(one)) == expected.get(row(one))
        keys = [row(number) for number in (other, one, other)]
        assert reader.get_many(keys) == [expected.get(key) for key in keys]


def test_a_change_of_one_row_reads_and_writes_one_page_of_many() -> None:
    pages = Pages()
    tree = stored(pages, Tree(), {row(number): bytes(200) for number in range(20_000)})
    assert tree.depth == 2
    pages.was_read.clear()
    pages.was_written.clear()
    tree = stored(pages, tree, {row(7_000): b"new"})
    assert len(pages.was_read) == tree.depth
    assert len(set(pages.was_written)) == tree.depth
    assert PagedTable(GROUP, tree, pages).get(row(7_000)) == b"new"


def test_a_table_that_becomes_empty_leaves_no_page() -> None:
    pages = Pages()
    rows = {row(number): bytes(200) for number in range(20_000)}
    tree = stored(pages, Tree(), dict(rows))
    tree = stored(pages, tree, dict.fromkeys(rows))
    assert (tree.depth, tree.root, pages) == (0, b"", {})


def test_a_page_is_an_array_of_msgpack_with_entry_and_value_in_turn() -> None:
    rows = [(b"\x00\x01a", b"1"), (b"\x00\x02", b"")]
    page = pack(rows)
    assert page == b"\x94\xc4\x03\x00\x01a\xc4\x011\xc4\x02\x00\x02\xc4\x00"
    assert unpack(page) == rows
