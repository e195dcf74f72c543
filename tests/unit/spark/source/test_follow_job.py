"""A stream of a job's changes has each of them once, whatever is retained when it looks."""

from collections.abc import Collection
from pathlib import Path

import msgspec
import pytest

from tests.support.cli import lay_out
from tests.support.damage import checkpoint_in, damaged, flipped
from tests.support.jobs import filled
from tests.unit.spark.source.reading import Row, bag, read, request, rows_of
from tidelog.checkpoint.manifest import encode_entry
from tidelog.errors import CorruptObjectError, ObjectNotFoundError, RestoreError
from tidelog.ids import Slot
from tidelog.spark.source.job import follow
from tidelog.spark.source.offsets import JobOffset
from tidelog.spark.source.options import Starting
from tidelog.spark.source.parts import connected
from tidelog.state.restore.redistribute import redistribute
from tidelog.storage import object_names

IDENTITY = ("operator", "subtask", "seqno")
SLOTS = (7, 8, 9)


def with_slots(slots: Collection[int]) -> dict[str, bytes]:
    """The store while these are its checkpoints."""
    gone = {object_names.checkpoint(Slot(slot)) for slot in SLOTS if slot not in slots}
    return {name: data for name, data in filled().items() if name not in gone}


class Location:
    """A store whose slots come and go."""

    def __init__(self, directory: Path) -> None:
        self.directory = lay_out(directory, with_slots(()))

    def retain(self, *slots: int) -> None:
        for slot in SLOTS:
            path = self.directory / object_names.checkpoint(Slot(slot))
            path.unlink(missing_ok=True)
            if slot in slots:
                path.write_bytes(filled()[object_names.checkpoint(Slot(slot))])

    def initial(self, starting: Starting = "earliest") -> JobOffset:
        with connected(str(self.directory)) as session:
            return session.run(follow.initial(session.store, starting))

    def latest(self) -> JobOffset:
        with connected(str(self.directory)) as session:
            return session.run(follow.latest(session.store))

    def between(self, start: JobOffset, end: JobOffset, **options: str) -> list[Row]:
        asked = request(self.directory, streaming=True, **options)
        with connected(str(self.directory)) as session:
            parts = session.run(follow.plan(session.store, asked, start, end))
        return rows_of(asked, parts)


@pytest.fixture
def location(tmp_path: Path) -> Location:
    return Location(tmp_path / "store")


def changes_from(slot: int) -> list[Row]:
    """Operator, subtask and number of all changes since the log of a slot began."""
    first, last = checkpoint_in(filled(), slot), checkpoint_in(filled(), 9)
    starts = follow.beginning(first).next
    return [
        {"operator": operator.id, "subtask": state.index, "seqno": number}
        for operator, state in last.subtasks()
        for number in range(starts[operator.id, state.index], state.seqno)
    ]


def test_every_change_comes_once_while_checkpoints_come_and_go(location: Location) -> None:
    location.retain(7)
    at, rows = location.initial(), []
    for retained in ([7], [7, 8], [8, 9]):
        location.retain(*retained)
        end = location.latest()
        found = location.between(at, end)
        assert {row["slot"] for row in found} <= {end.slot}
        rows += found
        at = end
    assert bag(rows, IDENTITY) == bag(changes_from(7))
    logs = [row for slot in SLOTS for row in read_all(location, slot)]
    content = [*IDENTITY, "op", "state", "key", "value"]
    # The view leaves out what is materialized already; the log holds it for the stream.
    shown = bag(logs, IDENTITY)
    seen = [row for row in rows if bag([row], IDENTITY).keys() <= shown.keys()]
    assert len(seen) > len(rows) / 2
    assert set(bag(seen, content)) <= set(bag(logs, content))


def read_all(location: Location, slot: int) -> list[Row]:
    location.retain(*SLOTS)
    return read(location.directory, view="changes", slot=slot)


def test_changes_between_the_same_offsets_are_the_same_whatever_is_retained(
    location: Location,
) -> None:
    location.retain(7)
    start = location.latest()
    location.retain(7, 8)
    end = location.latest()
    first = location.between(start, end)
    assert first
    content = [*IDENTITY, "slot", "op", "key_group", "state", "key", "value"]
    for retained in ([8], [8, 9], [7, 8, 9]):
        location.retain(*retained)
        assert bag(location.between(start, end), content) == bag(first, content)


def test_nothing_lies_between_equal_offsets(location: Location) -> None:
    location.retain(8)
    at = location.latest()
    location.retain(8, 9)
    assert location.between(at, at) == []


def test_changes_that_left_every_log_are_an_error_that_names_them(location: Location) -> None:
    location.retain(7)
    start = location.latest()
    location.retain(9)
    end = location.latest()
    with pytest.raises(RestoreError, match=r"changes \d+ to \d+ of .*in none"):
        location.between(start, end)
    found = location.between(start, end, failOnDataLoss="false")
    expected = set(bag(changes_from(9))) & set(bag(missed(start, end)))
    assert set(bag(found, IDENTITY)) == expected and len(found) == len(expected)


def missed(start: JobOffset, end: JobOffset) -> list[Row]:
    return [
        {"operator": operator, "subtask": subtask, "seqno": number}
        for (operator, subtask), upto in end.next.items()
        for number in range(start.next[operator, subtask], upto)
    ]


def test_a_stream_can_start_behind_a_slot_or_at_the_newest(location: Location) -> None:
    location.retain(*SLOTS)
    assert location.initial(8) == JobOffset.at(checkpoint_in(filled(), 8))
    assert location.initial("latest") == JobOffset.at(checkpoint_in(filled(), 9))
    with pytest.raises(ObjectNotFoundError, match="slot 77"):
        location.initial(77)


def test_a_stream_waits_for_the_first_checkpoint(location: Location) -> None:
    assert location.initial() == location.latest() == JobOffset(-1, {})
    assert location.between(location.initial(), location.latest()) == []


def test_a_location_without_a_job_is_an_error(tmp_path: Path) -> None:
    with connected(str(tmp_path)) as session, pytest.raises(ObjectNotFoundError, match="slots of"):
        session.run(follow.latest(session.store))


def test_a_job_that_went_back_to_an_older_slot_is_noticed(location: Location) -> None:
    location.retain(*SLOTS)
    start = JobOffset.at(checkpoint_in(filled(), 9))
    again = msgspec.structs.replace(checkpoint_in(filled(), 8), slot=Slot(11))
    (location.directory / object_names.checkpoint(Slot(11))).write_bytes(encode_entry(again))
    with pytest.raises(RestoreError, match="went back to an older slot") as raised:
        location.between(start, location.latest())
    assert not raised.value.retry_safe


@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_job_that_goes_on_in_another_shape_is_noticed(
    location: Location, parallelism: int
) -> None:
    location.retain(*SLOTS)
    start = JobOffset.at(checkpoint_in(filled(), 9))
    last = checkpoint_in(filled(), 9)
    operators = tuple(redistribute(each, parallelism) for each in last.operators)
    other = msgspec.structs.replace(last, slot=Slot(11), operators=operators)
    (location.directory / object_names.checkpoint(Slot(11))).write_bytes(encode_entry(other))
    with pytest.raises(RestoreError, match=f"{parallelism} that number their changes anew") as told:
        location.between(start, location.latest())
    assert "in slot 11" in str(told.value) and not told.value.retry_safe
    assert location.between(start, location.latest(), failOnDataLoss="false") == []


def test_streams_are_narrowed_like_loads(location: Location) -> None:
    location.retain(7)
    start = location.initial()
    location.retain(*SLOTS)
    whole = location.between(start, location.latest())
    found = location.between(start, location.latest(), operator="process", subtask="1")
    expected = [r for r in whole if (r["operator"], r["subtask"]) == ("process", 1)]
    assert found and bag(found) == bag(expected)


def test_a_slot_that_cannot_be_read_stops_the_stream(location: Location, tmp_path: Path) -> None:
    name = object_names.checkpoint(Slot(9))
    directory = lay_out(tmp_path / "damaged", damaged(filled(), name, flipped))
    with connected(str(directory)) as session, pytest.raises(CorruptObjectError, match=name):
        session.run(follow.latest(session.store))
