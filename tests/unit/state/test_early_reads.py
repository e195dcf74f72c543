"""What is fetched early for a buffer is what its states tell; the rest waits as it is read."""

from tidelog.changelog.change import prefix_end
from tidelog.checkpoint.manifest import StateInfo
from tidelog.state.recovery.reads import KeyReads

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


def test_the_first_look_at_timers_begins_in_each_key_group() -> None:
    reads = KeyReads(STATES).of_timers([GROUP, b"\x00\x08"])
    assert reads.keys == []
    assert [lower for lower, _ in reads.ranges] == [GROUP + state(2), b"\x00\x08" + state(2)]
