"""Objects of the log that are damaged or gone: rebuilt, or an error that names them; never state
that is wrong.

Every test damages a copy of the stored query's checkpoint. A copy has another path, so the worker's
JVM has nothing of it in memory.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from google_crc32c import value
from pyspark.errors import StreamingQueryException

from tests.spark.support.place import Place
from tests.spark.support.running import finish
from tests.spark.support.stored import BATCHES, BEFORE, session
from tests.spark.support.zoo.aggregations import TOTALS
from tests.support.depth import more_in_depth, one_by_one
from tidelog.spark.format.index import read_index

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.plugin_only


@pytest.fixture
def copy(stored: Place, tmp_path: Path) -> Place:
    """The stored query at a new place, with two more batches to come."""
    place = Place(tmp_path, input_root=stored.root)
    for folder in ("checkpoint", "out"):
        shutil.copytree(stored.root / folder, place.root / folder)
    return place


def newest_segment(place: Place) -> Path:
    return place.checkpoint / "_tidelog/segments" / last_index(place)["segments"][0][0]


def last_index(place: Place) -> dict[str, list[list[str]]]:
    commit = place.checkpoint / "commits" / str(BEFORE - 1)
    body: dict[str, list[list[str]]] = json.loads(commit.read_text().split("\n")[2])["body"]
    return body


def roll_up(place: Place) -> Path:
    return place.checkpoint / "_tidelog/index/0000000000.json"


def rewrite(path: Path, change: Callable[[bytes], bytes]) -> None:
    """Changes a file; the checksum file that Hadoop keeps for it would only hide the change."""
    path.write_bytes(change(path.read_bytes()))
    (path.parent / f".{path.name}.crc").unlink(missing_ok=True)


def remove(path: Path) -> None:
    path.unlink()
    (path.parent / f".{path.name}.crc").unlink(missing_ok=True)


def flip_middle(data: bytes) -> bytes:
    at = len(data) // 4
    return data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]


def goes_on(spark: "SparkSession", place: Place) -> None:
    finish(session(spark), TOTALS, place)
    assert TOTALS.result(place.rows()) == TOTALS.expected(BATCHES)


SEGMENT_DAMAGE: dict[str, Callable[[Path], None]] = {
    "a flipped bit": lambda path: rewrite(path, flip_middle),
    "half of it gone": lambda path: rewrite(path, lambda data: data[: len(data) // 2]),
    "nothing in it": lambda path: rewrite(path, lambda data: b""),
    "no such object": remove,
    "the bytes of another": lambda path: rewrite(
        path, lambda _: min(path.parent.glob("[0-9a-f]*.seg")).read_bytes()
    ),
}


def some(damages: dict[str, Callable[..., Any]], *usual: str) -> pytest.MarkDecorator:
    """All damages in depth, else the usual ones: the checks in Scala try every kind each time."""
    names = more_in_depth(list(usual), list(damages))
    return pytest.mark.parametrize("damage", [damages[name] for name in names], ids=names)


@some(SEGMENT_DAMAGE, "a flipped bit")
def test_a_damaged_segment_is_an_error_that_names_it_until_it_is_brought_back(
    spark: "SparkSession", copy: Place, damage: Callable[[Path], None]
) -> None:
    segment = newest_segment(copy)
    right = segment.read_bytes()
    before = copy.rows()
    damage(segment)
    with pytest.raises(StreamingQueryException, match=segment.name):
        finish(session(spark), TOTALS, copy)
    assert copy.rows() == before
    assert copy.committed()[-1] == BEFORE - 1
    segment.write_bytes(right)
    goes_on(spark, copy)


def test_a_damaged_segment_is_an_error_for_the_state_reader_too(
    spark: "SparkSession", copy: Place
) -> None:
    segment = newest_segment(copy)
    rewrite(segment, flip_middle)
    with pytest.raises(Exception, match=segment.name):
        spark.read.format("statestore").load(str(copy.checkpoint)).collect()


COMMIT_DAMAGE: dict[str, Callable[[str], str]] = {
    "no line": lambda line: "",
    "a changed character": lambda line: line.replace('"last"', '"lost"'),
    "half a line": lambda line: line[: len(line) // 2],
    "not JSON at all": lambda line: "\0\0\0\0",
}


@some(COMMIT_DAMAGE, "a changed character")
def test_a_damaged_index_line_is_rebuilt_from_the_segments(
    spark: "SparkSession", copy: Place, damage: Callable[[str], str]
) -> None:
    def change(data: bytes) -> bytes:
        version, ids, line = data.decode().split("\n")
        return "\n".join([version, ids, damage(line)]).encode()

    rewrite(copy.checkpoint / "commits" / str(BEFORE - 1), change)
    goes_on(spark, copy)


def stale(data: bytes) -> bytes:
    """A sound roll-up that lacks half of what it should name, as an older one would."""
    body = json.loads(data)["body"]
    body["changelogs"] = body["changelogs"][::2]
    text = json.dumps(body, separators=(",", ":"))
    return f'{{"body":{text},"crc32c":"{value(text.encode()):08x}"}}'.encode()


ROLL_UP_DAMAGE: dict[str, Callable[[Path], None]] = {
    "missing": remove,
    "changed": lambda path: rewrite(path, lambda data: data.replace(b'"last"', b'"lost"')),
    "cut off": lambda path: rewrite(path, lambda data: data[: len(data) // 2]),
    "empty": lambda path: rewrite(path, lambda data: b""),
    "stale": lambda path: rewrite(path, stale),
}


USUAL_DAMAGE = more_in_depth(["missing", "changed", "stale"], list(ROLL_UP_DAMAGE))


@one_by_one(
    damage={name: ROLL_UP_DAMAGE[name] for name in USUAL_DAMAGE},
    commits_are_there={"": True, "and its commits purged": False},
)
def test_a_damaged_roll_up_is_made_up_for_by_commits_and_segments_and_written_again(
    spark: "SparkSession", copy: Place, damage: Callable[[Path], None], commits_are_there: bool
) -> None:
    damage(roll_up(copy))
    if not commits_are_there:
        for batch in range(10):
            remove(copy.checkpoint / "commits" / str(batch))
    goes_on(spark, copy)
    written = read_index(roll_up(copy).read_text().strip(), "the roll-up")
    assert {entry.name.version for entry in written.entries} <= set(range(1, 11))
    assert written.entries
