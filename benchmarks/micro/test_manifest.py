"""Manifests: what the last step of a checkpoint costs, by the number of subtasks."""

import random

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from tidelog.changelog.segment import LogRange
from tidelog.checkpoint.manifest import (
    Author,
    Checkpoint,
    MaterializationRef,
    OperatorState,
    StateInfo,
    SubtaskState,
    decode_slot,
    encode_entry,
)
from tidelog.ids import CheckpointId, Generation, KeyGroup, MaterializationId, SeqNo, Slot
from tidelog.state.key_groups import range_of
from tidelog.storage import object_names

RANGES = 8
KEY_GROUPS = 1024
INLINE_BYTES = 100


def subtask(index: int, parallelism: int) -> SubtaskState:
    """A table, eight ranges of log behind it, and a small tail in the manifest."""
    owned = range_of(index, KEY_GROUPS, parallelism)
    generation, upto = Generation(1), SeqNo(1_000_000)
    log = [
        LogRange(
            object_names.segment(generation, "process", segment),
            index * 4096,
            4096,
            SeqNo(upto + segment * 1000),
            SeqNo(upto + segment * 1000 + 1000),
            KeyGroup(owned.first),
            KeyGroup(owned.last),
        )
        for segment in range(RANGES)
    ]
    number = MaterializationId(5)
    descriptor = object_names.materialization(generation, "count", index, number)
    return SubtaskState(
        index=index,
        first_key_group=owned.first,
        last_key_group=owned.last,
        seqno=SeqNo(upto + RANGES * 1000 + 10),
        table="rocksdb",
        materialization=MaterializationRef(number, descriptor, 900, upto, 60_000_000),
        log=tuple(log),
        inline=(random.Random(index).randbytes(INLINE_BYTES),),
    )


@pytest.fixture(params=[1, 200])
def checkpoint(request: pytest.FixtureRequest) -> Checkpoint:
    subtasks = tuple(subtask(index, request.param) for index in range(request.param))
    states = (StateInfo(0, "count", "value", ("count long",)),)
    return Checkpoint(
        slot=Slot(42),
        author=Author(Generation(1), "attempt"),
        checkpoint_id=CheckpointId(41),
        created_ms=1_780_000_000_000,
        job="word-count",
        operators=(OperatorState("count", KEY_GROUPS, states, subtasks),),
    )


def test_encode(benchmark: BenchmarkFixture, checkpoint: Checkpoint) -> None:
    """A checkpoint to the bytes of its slot."""
    assert decode_slot(benchmark(encode_entry, checkpoint), Slot(42)) == checkpoint


def test_decode(benchmark: BenchmarkFixture, checkpoint: Checkpoint) -> None:
    """The bytes of a slot, checked, to a checkpoint."""
    assert benchmark(decode_slot, encode_entry(checkpoint), Slot(42)) == checkpoint
