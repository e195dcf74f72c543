"""What is fetched early for a buffer is what its states tell; the rest waits as it is read."""

from tidelog.changelog.change import prefix_end
from tidelog.checkpoint.manifest import StateInfo
from tidelog.ids import KeyGroup
from tidelog.state.key_groups import KeyGroupRange, encode_key, key_group
from tidelog.state.recovery.reads import KeyReads
from tidelog.state.registry import POSITIONS

STATES = [
    StateInfo(0, "sum", "value", ("sum long",)),
    StateInfo(1, "names", "list", ("name string",)),
    StateInfo(2, "$timers-by-time", "timers", ("time bigint",)),
    StateInfo(3, "$timers-by-key", "timers", ("time bigint",)),
    StateInfo(4, "left", "timed-records", ("msgpack", "schema")),
]
GROUP = b"\x00\x07"


def state(number: int) -> bytes:
    return number.to_bytes(2, "big")


def test_a_key_has_one_row_of_a_value_and_a_range_of_a_list_and_of_its_timers() -> None:
    keys, ranges = KeyReads(STATES).of([GROUP + b"a", GROUP + b"a"], lambda _: False)
    assert keys == [GROUP + state(0) + b"a"]
    prefixes = [GROUP + state(number) + b"a" for number in (1, 3)]
    assert ranges == [(prefix, prefix_end(prefix)) for prefix in prefixes]


def test_a_row_in_memory_is_not_fetched() -> None:
    in_memory = {GROUP + state(0) + b"a"}
    group_keys = [GROUP + b"a", GROUP + b"b"]
    keys, _ = KeyReads(STATES[:1]).of(group_keys, in_memory.__contains__)
    assert keys == [GROUP + state(0) + b"b"]


def test_what_is_read_before_the_first_record_is_the_timers_of_all_groups_and_the_positions() -> (
    None
):
    reads = KeyReads([*STATES, StateInfo(5, POSITIONS, "map", ("p binary", "q binary"))])
    no_key = encode_key(None)
    group = key_group(no_key, 16)
    groups = KeyGroupRange(group, KeyGroup(group + 1))
    ranges = reads.at_start(groups, 16)
    first, second = groups.encoded()
    prefixes = [first + state(2), second + state(2), first + state(5) + no_key]
    assert ranges == [(prefix, prefix_end(prefix)) for prefix in prefixes]
    others = KeyGroupRange(KeyGroup(group + 1), KeyGroup(group + 1))
    assert [lower for lower, _ in reads.at_start(others, 16)] == [second + state(2)]
