"""A stream of a query's changes has those of each batch once."""

from pathlib import Path

import pytest

from tests.support.cli import lay_out
from tests.support.damage import flipped
from tests.unit.spark.source.changelogs import COLUMNS, real_changelogs
from tests.unit.spark.source.changelogs import rows_of as rows_of_name
from tests.unit.spark.source.reading import Row, bag, request, rows_of
from tests.unit.spark.synthetic import Synthetic
from tidelog.errors import ConfigError, CorruptObjectError, ObjectNotFoundError, RestoreError
from tidelog.spark.source.offsets import QueryOffset
from tidelog.spark.source.options import Starting
from tidelog.spark.source.parts import connected
from tidelog.spark.source.query import follow

__all__ = ["real_changelogs"]


class Location:
    """A checkpoint laid out in a directory, as it is at the moment."""

    def __init__(self, directory: Path, made: Synthetic) -> None:
        self.directory = directory
        self.made = made
        self.written: set[str] = set()

    def write(self) -> "Location":
        for name in self.written - set(self.made.objects):
            (self.directory / name).unlink()
        lay_out(self.directory, self.made.objects)
        self.written = set(self.made.objects)
        return self

    def initial(self, starting: Starting = "earliest") -> int:
        with connected(str(self.directory)) as session:
            return session.run(follow.initial(session.store, starting)).batch

    def latest(self) -> int:
        with connected(str(self.directory)) as session:
            return session.run(follow.latest(session.store)).batch

    def between(self, start: int, end: int, **options: str) -> list[Row]:
        asked = request(self.directory, streaming=True, **options)
        offsets = QueryOffset(start), QueryOffset(end)
        with connected(str(self.directory)) as session:
            parts = session.run(follow.plan(session.store, asked, *offsets))
        return rows_of(asked, parts)

    def expected(self, batches: range) -> list[Row]:
        names = [name for name in self.made.model if name.version - 1 in batches]
        return [row for name in names for row in rows_of_name(name)]


def at(directory: Path, made: Synthetic) -> Location:
    return Location(directory, made).write()


def test_the_changes_of_each_batch_come_once(tmp_path: Path) -> None:
    location = at(tmp_path, Synthetic(operators=2).virtual(2))
    position, rows = location.initial(), []
    assert position == -1
    for _ in range(4):
        end = location.latest()
        rows += location.between(position, end)
        position = end
        location.made.virtual(4)
        location.write()
    assert bag(rows, COLUMNS) == bag(location.expected(range(14)))


def test_nothing_lies_between_equal_offsets(tmp_path: Path) -> None:
    assert at(tmp_path, Synthetic().virtual(3)).between(2, 2) == []


def test_attempts_that_failed_are_not_part_of_it(tmp_path: Path) -> None:
    made = Synthetic().virtual(2).failed_attempt().virtual(1)
    assert bag(at(tmp_path, made).between(-1, 2), COLUMNS) == bag(
        Location(tmp_path, made).expected(range(3))
    )


def test_batches_from_before_the_plug_in_are_part_of_it(tmp_path: Path) -> None:
    location = at(tmp_path, Synthetic().stock(3).virtual(3))
    found = location.between(1, 4)
    assert bag(found, COLUMNS) == bag(location.expected(range(2, 5)))


def test_a_batch_with_a_damaged_index_is_found_in_the_footers(tmp_path: Path) -> None:
    made = Synthetic().virtual(4)
    commit = made.objects["commits/2"]
    made.objects["commits/2"] = commit[:-9] + flipped(commit[-9:])
    location = at(tmp_path, made)
    assert bag(location.between(1, 3), COLUMNS) == bag(location.expected(range(2, 4)))


def test_a_damaged_commit_stops_the_stream(tmp_path: Path) -> None:
    made = Synthetic().virtual(4)
    made.objects["commits/2"] = b"nothing of Spark's"
    with pytest.raises(CorruptObjectError, match="commits/2"):
        at(tmp_path, made).between(1, 3)


def test_batches_that_were_purged_are_an_error_that_names_them(tmp_path: Path) -> None:
    location = at(tmp_path, Synthetic().virtual(12).purge(until=5))
    with pytest.raises(RestoreError, match=r"changes of batch 3 \(of 3 to 11\).*minBatches"):
        location.between(2, 11)
    found = location.between(2, 11, failOnDataLoss="false")
    assert bag(found, COLUMNS) == bag(location.expected(range(5, 12)))


def test_a_segment_that_is_gone_is_an_error_that_names_its_changelog(tmp_path: Path) -> None:
    made = Synthetic(executors=1).virtual(4)
    del made.objects[made.segments()[2]]
    location = at(tmp_path, made)
    with pytest.raises(RestoreError, match=r"changelog 0/0/3_.*no segment"):
        location.between(0, 3)
    found = location.between(0, 3, failOnDataLoss="false")
    expected = [row for row in location.expected(range(1, 4)) if row["slot"] != 2]
    assert bag(found, COLUMNS) == bag(expected)


def test_a_stream_starts_at_the_oldest_retained_batch_or_behind_a_chosen_one(
    tmp_path: Path,
) -> None:
    location = at(tmp_path, Synthetic().virtual(12).purge(until=5))
    assert location.initial() == 4
    assert location.initial(7) == 7
    assert location.initial("latest") == location.latest() == 11
    with pytest.raises(ObjectNotFoundError, match="batch 3"):
        location.initial(3)


def test_a_query_that_has_committed_nothing_yet_has_no_changes(tmp_path: Path) -> None:
    made = Synthetic()
    made.objects["offsets/0"] = b"v1\n{}\n0"
    location = at(tmp_path, made)
    assert location.initial() == location.initial("latest") == location.latest() == -1
    assert location.between(-1, -1) == []


def test_decoded_columns_are_refused_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="key_json"):
        at(tmp_path, Synthetic().virtual(1)).between(-1, 0, decode="true")
