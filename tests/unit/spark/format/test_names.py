"""Names of changelogs: exactly those of Spark with a checkpoint id, and back to the same text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.errors import InvariantError
from tidelog.spark.format.names import ChangelogName, roll_up_name, segment_name

PARTS = st.text(min_size=1).filter(lambda text: "/" not in text)
NAMES = st.builds(
    ChangelogName,
    operator=st.integers(0, 2**63 - 1),
    partition=st.integers(0, 2**31 - 1),
    store=PARTS,
    version=st.integers(0, 2**63 - 1),
    id=PARTS,
)


@given(NAMES)
def test_a_name_is_parsed_back_from_its_path(name: ChangelogName) -> None:
    assert ChangelogName.parse(name.path) == name
    assert ChangelogName.of(name.directory, name.version, name.id) == name


def test_the_default_store_has_no_directory_of_its_own() -> None:
    assert ChangelogName.parse("0/3/12_a.changelog") == ChangelogName(0, 3, "default", 12, "a")
    assert ChangelogName.parse("1/3/left/12_a.changelog") == ChangelogName(1, 3, "left", 12, "a")


@pytest.mark.parametrize(
    "path",
    [
        "0/3/12.changelog",
        "0/3/12_a.zip",
        "0/3/12_.changelog",
        "03/3/12_a.changelog",
        "0/3/default/12_a.changelog",
        "0/3/a/b/12_a.changelog",
        "0/99999999999/12_a.changelog",
        "0/3/99999999999999999999_a.changelog",
        "x/0/3/12_a.changelog",
        "0/_metadata/12_a.changelog",
        "0/\u0663/12_a.changelog",
    ],
)
def test_other_files_are_not_taken_for_changelogs(path: str) -> None:
    assert ChangelogName.parse(path) is None


def test_a_directory_that_holds_part_of_the_file_name_makes_no_name() -> None:
    assert ChangelogName.of("0/3", 12, "a/1_b") is None


def test_objects_have_fixed_names() -> None:
    assert segment_name("0a1b2c3d", "1", 7) == "0a1b2c3d-1-00000007.seg"
    assert roll_up_name(19) == "0000000010.json"
    assert roll_up_name(20) == "0000000020.json"


def test_there_is_no_roll_up_before_the_first_batch() -> None:
    with pytest.raises(InvariantError, match="batch number from 0"):
        roll_up_name(-1)
