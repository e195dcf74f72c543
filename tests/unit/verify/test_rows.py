"""Rows that cannot be where they are found are counted to the rule they break.

Fingerprints depend on the rows alone, and add up.
"""

import msgspec
import pytest

from tidelog.checkpoint.manifest import StateInfo
from tidelog.ids import KeyGroup
from tidelog.state.key_groups import KeyGroupRange, encode_key, key_group
from tidelog.verify.fingerprint import Row
from tidelog.verify.job.rows import RowScan

GROUPS = 8
TIME = (1 << 63).to_bytes(8, "big")
KINDS = ["value", "list", "map", "timers", "aggregate", "splits", "window-aggregate"]


def info(kind: str, name: str = "state") -> StateInfo:
    return StateInfo(3, name, kind, ())


def own_key(kind: str, name: str, key: object) -> bytes:
    """A row's own key, as the state of this kind writes it."""
    encoded = encode_key(key)
    match kind:
        case "map":
            return encoded + msgspec.msgpack.encode(("entry", 1))
        case "timers" if name.endswith("-by-time"):
            return TIME + encoded
        case "list" | "timers" | "window-aggregate":
            return encoded + TIME
        case "window-records":
            return encoded + TIME + TIME
        case "timed-records" | "timed-marks":
            return TIME + encoded + TIME + bytes(12)
    return encoded


def row(kind: str, name: str, key: object, *, group: int | None = None, state: int = 3) -> Row:
    right = key_group(encode_key(key), GROUPS)
    prefix = (right if group is None else group).to_bytes(2, "big") + state.to_bytes(2, "big")
    return prefix + own_key(kind, name, key), b"value"


def scanned(rows: list[Row], states: list[StateInfo], last: int = 7) -> RowScan:
    scan = RowScan(GROUPS, KeyGroupRange(KeyGroup(0), KeyGroup(last)), states)
    scan.take(sorted(rows))
    return scan


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *((kind, "state") for kind in KINDS),
        ("window-records", "windows"),
        ("timed-records", "left"),
        ("timed-marks", "left-marks"),
        ("timers", "$timers-by-time"),
    ],
)
def test_keys_of_every_kind_lie_in_the_key_group_of_their_hash(kind: str, name: str) -> None:
    keys = ["a", ("b", 7), 12, "ä" * 40, None]
    right = [row(kind, name, key) for key in keys]
    scan = scanned(right, [info(kind, name)])
    assert scan.violations == {} and scan.total.rows == len(keys)

    key = keys[0]
    elsewhere = (key_group(encode_key(key), GROUPS) + 1) % GROUPS
    moved = scanned([*right[1:], row(kind, name, key, group=elsewhere)], [info(kind, name)])
    (violation,) = moved.violations.values()
    assert violation.expected == "every key in the key group of its hash" and violation.rows == 1


def test_keys_within_a_batch_lie_in_the_key_group_of_their_hash() -> None:
    keys = [encode_key(key) for key in range(40) if key_group(encode_key(key), GROUPS) == 2]
    elsewhere = next(k for k in map(encode_key, range(40)) if key_group(k, GROUPS) != 2)

    def batch(number: int, keys: list[bytes]) -> Row:
        times = list(range(len(keys)))
        value = msgspec.msgpack.encode([keys, times, times, [b"\1"] * len(keys)])
        return b"\0\2\0\3" + TIME + number.to_bytes(12, "big"), value

    rows = [batch(1, keys), batch(2, [*keys, elsewhere]), (batch(3, keys)[0], b"no batch")]
    (violation,) = scanned(rows, [info("timed-batches")]).violations.values()
    assert violation.expected == "every key in the key group of its hash" and violation.rows == 2


def test_rows_of_other_subtasks_are_counted() -> None:
    rows = [row("value", "state", key) for key in range(40)]
    outside = [key for key, _ in rows if key[1] > 3]
    (violation,) = scanned(rows, [info("value")], last=3).violations.values()
    assert violation.expected == "rows of key groups 0 to 3"
    assert violation.rows == len(outside)
    assert violation.found.startswith(f"row {min(outside).hex()}, and {len(outside) - 1} rows more")


@pytest.mark.parametrize(
    ("found", "kind", "rule"),
    [
        (row("value", "state", 1, state=9), "value", "rows of states that the manifest names"),
        ((b"\0\1\0", b""), "value", "row keys of 4 bytes or more"),
        ((b"\0\0\0\3\xc1", b""), "map", "every key in the key group of its hash"),
    ],
    ids=["unknown state", "too short", "no msgpack"],
)
def test_a_row_that_cannot_be_is_counted_to_the_rule_it_breaks(
    found: Row, kind: str, rule: str
) -> None:
    (violation,) = scanned([found], [info(kind)]).violations.values()
    assert violation.expected == rule
