"""Key groups partition the keys, and subtasks the key groups."""

import hypothesis.strategies as st
from hypothesis import given

from tidelog.state.key_groups import (
    decode_key,
    encode_key,
    key_group,
    range_of,
    subtask_of,
)

keys = st.recursive(
    st.one_of(st.text(), st.integers(-(2**63), 2**63 - 1), st.binary(), st.booleans(), st.none()),
    lambda inner: st.tuples(inner, inner),
    max_leaves=4,
)


@given(st.integers(1, 500), st.integers(1, 500))
def test_ranges_partition_the_key_groups_in_order(key_groups: int, parallelism: int) -> None:
    parallelism = min(parallelism, key_groups)
    ranges = [range_of(n, key_groups, parallelism) for n in range(parallelism)]
    covered = [g for r in ranges for g in range(r.first, r.last + 1)]
    assert covered == list(range(key_groups))
    sizes = [r.last - r.first + 1 for r in ranges]
    assert max(sizes) - min(sizes) <= 1
    owners = (subtask_of(group, key_groups, parallelism) for group in covered)
    assert all(group in ranges[owner] for group, owner in enumerate(owners))


@given(keys)
def test_a_key_comes_back_as_it_was(key: object) -> None:
    assert decode_key(encode_key(key)) == key


@given(keys, keys)
def test_no_encoded_key_is_the_beginning_of_another(left: object, right: object) -> None:
    """A scan over the rows of one key must not meet another key's."""
    a, b = encode_key(left), encode_key(right)
    assert a == b or not b.startswith(a)


def test_key_groups_never_change_between_releases() -> None:
    stored = {"tide": 126, ("a", 1): 31, 7: 58, b"x": 79}
    assert {key: key_group(encode_key(key), 128) for key in stored} == stored
