"""Whatever bytes somebody puts into a store: reading them gives an error of tidelog, or values.

Golden objects are damaged at random and their checksums made right again, as somebody would do who
wants to harm a reader; random bytes, pieces of objects and deep nesting are tried, too.
`TIDELOG_TEST_SEED` chooses other damages.
"""

import os
import random
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.golden.writing import FOLDER
from tests.property.parsers import PARSERS, Parser
from tests.support.depth import more_in_depth
from tidelog.checkpoint import local_copies
from tidelog.checkpoint.descriptor import decode_descriptor, encode_descriptor
from tidelog.connectors import transactions
from tidelog.connectors.files.parts import Part
from tidelog.errors import CorruptObjectError, RestoreError, TidelogError
from tidelog.table.frame import encode_rows
from tidelog.table.memory import INDEX_NAME, MemoryTableFactory
from tidelog.table.rocksdb import SNAPSHOT_NAME, unpack

SEED = os.environ.get("TIDELOG_TEST_SEED", "hostile")
DAMAGES = more_in_depth(500, 50_000)
"""How many damaged copies of its examples each parser gets."""
LONGEST = 4_000
"""Characters of an error: whoever wrote an object must not flood the log of its reader."""


def damaged(data: bytes, rng: random.Random) -> bytes:
    """The bytes with one to four changes of any kind."""
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(data)) if data else 0
        end = min(len(data), at + rng.choice((1, 2, 4, 8, 40)))
        other = rng.randrange(len(data)) if data else 0
        data = rng.choice(
            (
                data[:at] + rng.randbytes(end - at) + data[end:],
                data[:at] + bytes([0xFF] * (end - at)) + data[end:],
                data[:at] + bytes(end - at) + data[end:],
                data[:at] + data[end:],
                data[:at] + rng.randbytes(rng.randint(1, 9)) + data[at:],
                data[:at] + data[other : other + end - at] + data[end:],
                data[:at] + str(rng.choice((-1, 0, 2**31, 2**63, 2**64))).encode() + data[end:],
            )
        )
    return data


def damages(parser: Parser) -> int:
    """How often each of its examples is damaged."""
    return DAMAGES // len(parser.examples)


@pytest.mark.parametrize("name", PARSERS)
def test_a_damaged_object_is_an_error_of_tidelog_or_values(name: str) -> None:
    parser = PARSERS[name]
    rng = random.Random(f"{SEED} {name}")
    refused = 0
    for example in parser.examples:
        for number in range(damages(parser)):
            data = damaged(example, rng)
            for hostile in (data, parser.seal(data)):
                refused += refuses(parser, hostile, f"damage {number} of {name}")
    assert parser.tolerant or refused > len(parser.examples) * damages(parser) / 2


@pytest.mark.parametrize("name", PARSERS)
@given(data=st.data())
@settings(max_examples=more_in_depth(30, 5_000))
def test_any_bytes_are_an_error_of_tidelog_or_values(name: str, data: st.DataObject) -> None:
    """Random, cut short, one behind the other, and one's beginning with another's end."""
    parser = PARSERS[name]
    example = st.sampled_from(parser.examples)
    piece = example.flatmap(lambda whole: st.integers(0, len(whole)).map(lambda at: whole[:at]))
    rest = example.flatmap(lambda whole: st.integers(0, len(whole)).map(lambda at: whole[at:]))
    hostile = data.draw(
        st.one_of(
            st.binary(max_size=300),
            piece,
            st.tuples(piece, st.binary(max_size=60), rest).map(b"".join),
            st.tuples(example, example).map(b"".join),
            st.sampled_from(list(PARSERS)).map(lambda other: PARSERS[other].examples[0]),
        ),
        "hostile",
    )
    for each in (hostile, parser.seal(hostile)):
        refuses(parser, each, name)


@pytest.mark.parametrize("name", PARSERS)
@pytest.mark.parametrize(
    "opening",
    [b"[", b'{"":', b"\x91", b"\x81\xa0", b"\xdd\0\0\0\1", b"(", b"a array<", b"a struct<"],
    ids=repr,
)
def test_any_number_of_levels_is_an_error_of_tidelog_or_values(name: str, opening: bytes) -> None:
    parser = PARSERS[name]
    example, deep = parser.examples[0], opening * 20_000
    middle = len(example) // 2
    for hostile in (deep, example[:middle] + deep + example[middle:]):
        for each in (hostile, parser.seal(hostile)):
            refuses(parser, each, name)


def refuses(parser: Parser, hostile: bytes, what: str) -> bool:
    """Whether it is refused; fails for any error but one of tidelog."""
    try:
        parser.read(hostile)
    except TidelogError as error:
        assert len(str(error)) < LONGEST, f"{what}: an error of {len(str(error))} characters"
        return True
    except Exception as error:
        raise AssertionError(f"{what}: {hostile[:2000]!r}") from error
    return False


@pytest.mark.parametrize("name", ["../../etc/cron.d/job", "/etc/passwd", "..", "a/b", ""])
def test_a_file_of_a_table_has_a_name_and_no_path(name: str, tmp_path: Path) -> None:
    golden = decode_descriptor((FOLDER / "descriptor_v1.json").read_bytes(), "it")
    shared = msgspec.structs.replace(golden.shared[0], name=name)
    for hostile in (
        msgspec.structs.replace(golden, shared=(shared,)),
        msgspec.structs.replace(golden, private={name: b"harm"}),
    ):
        with pytest.raises(CorruptObjectError):
            decode_descriptor(encode_descriptor(hostile), "it")
    part = msgspec.msgpack.encode([Part(name, "final", 1, 2, "final", 3, 0)])
    with pytest.raises(RestoreError):
        transactions.decode("sink", list[Part], part)


@pytest.mark.parametrize("name", [b"../harm", b"/tmp/harm", b"harm", b"CURRENT/../harm"])
def test_a_snapshot_writes_rocksdbs_own_files_and_no_other(name: bytes, tmp_path: Path) -> None:
    directory = tmp_path / "table"
    directory.mkdir()
    (directory / SNAPSHOT_NAME).write_bytes(encode_rows([(name, b"harm")]))
    with pytest.raises(CorruptObjectError, match="names of RocksDB's files"):
        unpack(directory)
    assert [path.name for path in tmp_path.rglob("*")] == ["table", SNAPSHOT_NAME]


def test_an_index_of_rows_in_memory_names_its_own_files_and_no_other(tmp_path: Path) -> None:
    (tmp_path / "harm").write_bytes(encode_rows([(b"k", b"v")]))
    directory = tmp_path / "table"
    directory.mkdir()
    (directory / INDEX_NAME).write_bytes(encode_rows([(b"../harm", b"")]))
    with pytest.raises(CorruptObjectError, match="names of files with rows"):
        MemoryTableFactory().restore(directory)


@pytest.mark.parametrize(
    "name",
    [
        "segments/../../harm",
        "segments/00000000-a-0000000001.seg/../../../harm",
        f"tables/../{'0' * 32}-x.sst",
        f"tables/00000000/{'0' * 32}-../../harm.sst",
    ],
)
def test_no_copy_on_the_local_disk_has_a_name_that_leads_out_of_its_directory(name: str) -> None:
    assert not local_copies.copied(name)
