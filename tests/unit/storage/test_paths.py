"""Object names sort as their numbers do, and only our own names are parsed."""

import pytest

from tidelog.errors import ConfigError, InvariantError
from tidelog.ids import Generation, MaterializationId, Slot
from tidelog.storage import object_names

NUMBERS = [0, 1, 9, 10, 123, 99_999_999, 100_000_000, 100_000_001, 999_999_999, 10**9, 10**12]


def test_names_are_those_of_the_format() -> None:
    assert object_names.checkpoint(Slot(123)) == "checkpoints/00000123.json"
    assert (
        object_names.segment(Generation(7), "driver", 42)
        == "segments/00000007-driver-0000000042.seg"
    )
    assert object_names.table_file(Generation(7), "0af3") == "tables/00000007/0af3.sst"
    name = object_names.materialization(Generation(7), "count-words.v2", 3, MaterializationId(12))
    assert name == "materializations/00000007/count-words.v2-3-12.json"
    assert object_names.probe("0af3", "race-1") == "probe/0af3/race-1"


def test_checkpoint_names_sort_as_their_slots_do() -> None:
    names = [object_names.checkpoint(Slot(number)) for number in NUMBERS]
    assert names == sorted(names)


def test_segment_names_sort_as_their_generations_and_counters_do() -> None:
    pairs = [(generation, counter) for generation in NUMBERS for counter in NUMBERS]
    names = [
        object_names.segment(Generation(generation), "0", counter) for generation, counter in pairs
    ]
    assert names == sorted(names)


@pytest.mark.parametrize("number", NUMBERS)
def test_a_slot_is_read_back_from_its_name(number: int) -> None:
    assert object_names.slot_of(object_names.checkpoint(Slot(number))) == number


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("label", ["a", "a-1-2", "00000009-0000000001", "._-Z", "json"])
def test_a_generation_is_read_back_from_every_kind_of_name(number: int, label: str) -> None:
    generation = Generation(number)
    for name in (
        object_names.segment(generation, label, 5),
        object_names.table_file(generation, label),
        object_names.materialization(generation, label, 3, MaterializationId(9)),
    ):
        assert object_names.generation_of(name) == generation
        assert object_names.slot_of(name) is None


@pytest.mark.parametrize(
    "name",
    [
        "",
        "checkpoints/123.json",
        "checkpoints/000000123.json",
        "checkpoints/a00000123.json",
        "checkpoints/00000123.json.bak",
        "old/checkpoints/00000123.json",
        "checkpoints/0000012x.json",
        "checkpoints/00000123.json\n",
        "segments/7-driver-0000000042.seg",
        "segments/00000007-0000000042.seg",
        "segments/00000007-driver-42.seg",
        "tables/00000007/a/b.sst",
        "materializations/00000007/count-3.json",
        "probe/0af3/race-1",
    ],
)
def test_a_foreign_name_is_not_parsed(name: str) -> None:
    assert object_names.slot_of(name) is None
    assert object_names.generation_of(name) is None


@pytest.mark.parametrize("label", ["", "a/b", "a b", "ä", "a\n"])
def test_a_label_that_would_break_a_name_is_refused(label: str) -> None:
    with pytest.raises(ConfigError, match="operator id"):
        object_names.materialization(Generation(1), label, 0, MaterializationId(0))
    with pytest.raises(ConfigError, match="process"):
        object_names.segment(Generation(1), label, 0)


def test_a_negative_number_is_refused() -> None:
    with pytest.raises(InvariantError, match="-1"):
        object_names.checkpoint(Slot(-1))


@pytest.mark.parametrize(
    "name", ["", "/a", "a/", "a//b", "./a", "a/../b", "..", "ä", "a\tb", "a\n"]
)
def test_a_name_outside_the_port_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="object name"):
        object_names.check_name(name)
