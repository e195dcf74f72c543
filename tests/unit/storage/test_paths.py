"""Object names sort as their numbers do, and only our own names are parsed."""

import pytest

from tidelog.errors import ConfigError
from tidelog.ids import Generation, MaterializationId, Slot
from tidelog.storage import object_names


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


@pytest.mark.parametrize(
    "name", ["", "/a", "a/", "a//b", "./a", "a/../b", "..", "ä", "a\tb", "a\n"]
)
def test_a_name_outside_the_port_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="object name"):
        object_names.check_name(name)
