"""Fingerprints depend on the rows alone, and add up."""

from hypothesis import given
from hypothesis import strategies as st

from tidelog.verify.fingerprint import Fingerprint, combined, differing, fingerprint

ROWS = st.dictionaries(st.binary(max_size=6), st.binary(max_size=6), max_size=12)


@given(ROWS, st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(rows: dict[bytes, bytes], random) -> None:  # type: ignore[no-untyped-def]
    shuffled = list(rows.items())
    random.shuffle(shuffled)
    assert fingerprint(shuffled) == fingerprint(rows.items())


@given(ROWS, ROWS)
def test_different_rows_have_different_fingerprints(
    one: dict[bytes, bytes], other: dict[bytes, bytes]
) -> None:
    assert (fingerprint(one.items()) == fingerprint(other.items())) == (one == other)


@given(ROWS, st.integers(1, 4))
def test_parts_add_up_to_the_whole(rows: dict[bytes, bytes], parts: int) -> None:
    items = list(rows.items())
    assert combined(fingerprint(items[n::parts]) for n in range(parts)) == fingerprint(items)


def test_a_byte_that_moves_from_key_to_value_changes_it() -> None:
    assert fingerprint([(b"ab", b"c")]) != fingerprint([(b"a", b"bc")])


def test_a_row_that_comes_twice_counts_twice() -> None:
    row = (b"key", b"value")
    assert fingerprint([row, row]) not in (fingerprint([row]), Fingerprint())


def test_it_is_written_as_32_hexadecimal_digits() -> None:
    text = str(fingerprint([(b"key", b"value")]))
    assert len(text) == 32 and int(text, 16) == fingerprint([(b"key", b"value")]).total


def test_key_groups_that_differ_are_named_and_an_empty_one_equals_a_missing_one() -> None:
    some, other = fingerprint([(b"a", b"")]), fingerprint([(b"b", b"")])
    assert differing({1: some, 3: some, 4: Fingerprint()}, {1: some, 3: other, 7: some}) == [3, 7]
