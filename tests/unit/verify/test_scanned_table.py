"""What follows changes from row to row answers what a scan of all rows would.

Paths that begin at one table make their own states, whatever log they share.
"""

from hypothesis import given
from hypothesis import strategies as st

from tests.property.profiles import looking
from tidelog.checkpoint.manifest import StateInfo
from tidelog.ids import KeyGroup
from tidelog.state.key_groups import KeyGroupRange, encode_key, key_group
from tidelog.table.memory import MemoryTable
from tidelog.verify.job.rows import RowScan
from tidelog.verify.job.table import ScannedTable

GROUPS = 4


def row_key(number: int, astray: bool) -> bytes:
    key = encode_key(number)
    group = (key_group(key, GROUPS) + astray) % GROUPS
    return group.to_bytes(2, "big") + b"\0\3" + key


KEYS = st.builds(row_key, st.integers(0, 60), st.integers(0, 9).map(lambda n: n == 0))
CHANGES = st.dictionaries(KEYS, st.none() | st.binary(max_size=3), max_size=12)
ROWS = st.dictionaries(KEYS, st.binary(max_size=3), min_size=20, max_size=60)


def empty() -> RowScan:
    owned = KeyGroupRange(KeyGroup(0), KeyGroup(2))
    return RowScan(GROUPS, owned, [StateInfo(3, "state", "value", ())])


def expected(rows: dict[bytes, bytes]) -> tuple[object, ...]:
    scan = empty()
    scan.take(sorted(rows.items()))
    return seen(scan)


def seen(scan: RowScan) -> tuple[object, ...]:
    return {group: each for group, each in scan.groups.items() if each.rows}, scan.violations


def columns(changes: dict[bytes, bytes | None]) -> tuple[list[bytes], list[bytes | None]]:
    keys = sorted(changes)
    return keys, [changes[key] for key in keys]


def after(rows: dict[bytes, bytes], changes: dict[bytes, bytes | None]) -> dict[bytes, bytes]:
    return {key: value for key, value in {**rows, **changes}.items() if value is not None}


@looking(30)
@given(ROWS, st.lists(st.tuples(CHANGES, CHANGES, st.booleans()), max_size=5))
def test_rows_and_misfits_are_those_of_a_scan_after_any_changes(
    rows: dict[bytes, bytes],
    steps: list[tuple[dict[bytes, bytes | None], dict[bytes, bytes | None], bool]],
) -> None:
    table = MemoryTable()
    table.load(*columns(dict(rows)))
    scanned = ScannedTable(table, empty())
    for applied, tried, asked in steps:
        scanned.apply(*columns(applied))
        rows = after(rows, applied)
        if asked:
            assert seen(scanned.rows()) == expected(rows)
        assert seen(scanned.changed(*columns(tried))) == expected(after(rows, tried))
