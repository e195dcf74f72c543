"""The Scala twin of the format passes its own checks under the installed Spark.

They are in native/spark-state-store/src/test and need no test library.
"""

import pytest

from tests.unit.spark.scala_checks import GOLDEN, ScalaChecks

CHECKS = [
    "names are parsed back",
    "other files are not taken for changelogs",
    "objects have fixed names",
    "integers of every size are read back and as short as can be",
    "texts and arrays of every size are read back",
    "every kind of value is passed over",
    "truncated and foreign values are malformed",
    "the footer finds every piece, and its block holds the content",
    "a footer is read from the segment's end",
    "a footer longer than the first reading is read whole",
    "a segment without a piece is read",
    "every flipped bit of a segment is found",
    "every truncation of a segment is found",
    "bytes behind the trailer are found",
    "a footer that names another changelog than its block is refused",
    "every flipped bit of a block is found",
    "every truncation of a block is found",
    "the block of another changelog or piece is refused",
    "a block with bytes behind it is refused",
    "a block of another kind, codec or flag is refused under a good checksum",
    "a commit's index line is read",
    "Spark's lines of a commit stand before the index",
    "a roll-up is read",
    "entries in any order are the same text",
    "every flipped bit of an index is found",
    "every truncation of an index is found",
    "text behind an index is found",
    "an index of a newer format is refused by name",
    "fields of a later release do no harm",
    "an index that is not whole is refused under a good checksum",
    "a piece in a segment of unknown length is not written",
    "every golden file is written the same today",
]


@pytest.fixture(scope="session")
def outcomes(scala_checks: ScalaChecks) -> dict[str, str | None]:
    """Why a check failed, or None, by the check's name."""
    return scala_checks.outcomes("format.FormatChecks", GOLDEN)


@pytest.mark.parametrize("check", CHECKS)
def test_in_scala(outcomes: dict[str, str | None], check: str) -> None:
    assert outcomes[check] is None


def test_every_check_in_scala_is_one_of_those_above(outcomes: dict[str, str | None]) -> None:
    assert sorted(outcomes) == sorted(CHECKS)
