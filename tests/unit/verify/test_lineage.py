"""Two chains are joined only where they are known to tell the same history."""

from dataclasses import replace

import msgspec
import pytest

from tidelog.changelog.block import seal
from tidelog.changelog.change import ChangeBatch
from tidelog.changelog.segment import LogRange
from tidelog.checkpoint.manifest import MaterializationRef, SubtaskState
from tidelog.ids import Generation, KeyGroup, MaterializationId, SeqNo, Slot
from tidelog.storage import object_names
from tidelog.verify.job.paths import (
    INHERITED,
    LOG_IS_CUT,
    NO_MATERIALIZATION,
    NO_STATE,
    ONLY_ONE,
    AlternateHistory,
    Chain,
    PathStep,
    alternate_history,
    alternate_path,
    base_of,
    direct_path,
)


def log(generation: int, first: int, end: int) -> LogRange:
    segment = object_names.segment(Generation(generation), "p", first)
    return LogRange(segment, 44, 10, SeqNo(first), SeqNo(end), KeyGroup(0), KeyGroup(9))


def inline(first: int, end: int) -> bytes:
    keys = [n.to_bytes(6, "big") for n in range(end - first)]
    return seal(ChangeBatch(SeqNo(first), keys, keys)).data


def chain(
    slot: int,
    *ranges: LogRange,
    seqno: int,
    upto: int | None = None,
    by: int = 0,
    generation: int = 0,
    tail: tuple[bytes, ...] = (),
) -> Chain:
    """A partition in a slot of a generation, materialized up to a change `by` a generation."""
    ref = None
    if upto is not None:
        name = object_names.materialization(Generation(by), "op", 0, MaterializationId(upto))
        ref = MaterializationRef(MaterializationId(upto), name, 1, SeqNo(upto), 1)
    state = SubtaskState(0, 0, 9, SeqNo(seqno), "memory", ref, ranges, tail)
    return Chain(Slot(slot), Generation(generation), state)


NEWER = chain(4, log(0, 50, 80), seqno=80, upto=50)
OWN = chain(2, log(0, 0, 9), seqno=9)
RESCALED = replace(OWN, state=msgspec.structs.replace(OWN.state, inherited=(NEWER.state.own,)))
RESUMED = chain(6, log(0, 10, 30), log(5, 30, 80), seqno=80, upto=20, by=0, generation=5)

JOINED = {
    "a log from the beginning leads to the first materialization": (
        *(NEWER, [chain(1, log(0, 0, 60), seqno=60)], (1, 50)),
    ),
    "a newer log that begins before its materialization fills the gap": (
        chain(2, log(0, 30, 80), seqno=80, upto=50),
        [chain(1, log(0, 0, 40), seqno=40)],
        (1, 40),
    ),
    "what an older range holds beyond its checkpoint counts": (
        *(NEWER, [chain(1, log(0, 0, 55), seqno=40)], (1, 50)),
    ),
    "inline blocks are part of the older log": (
        NEWER,
        [chain(1, log(0, 0, 30), seqno=50, tail=(inline(30, 50),))],
        (1, 50),
    ),
    "the newest older materialization that leads there is taken": (
        NEWER,
        [
            chain(1, log(0, 0, 60), seqno=60),
            chain(2, log(0, 20, 60), seqno=60, upto=20),
            chain(3, log(0, 30, 45), seqno=45, upto=30),
        ],
        (2, 50),
    ),
    "history before the successor took over is shared": (
        # Materialized by generation 0 up to 30, and from there on logged by generation 5.
        chain(6, log(5, 30, 80), seqno=80, upto=30, by=0, generation=5),
        [chain(1, log(0, 0, 60), seqno=60)],
        (1, 30),
    ),
    "a successor that kept the log joins where it was resumed": (
        *(RESUMED, [chain(1, log(0, 0, 60), seqno=30)], (1, 20)),
    ),
    "the older log may not lead beyond the change that its successor resumed from": (
        chain(6, log(0, 10, 15), log(5, 15, 80), seqno=80, upto=20, by=5, generation=5),
        [chain(1, log(0, 0, 60), seqno=30)],
        (1, 15),
    ),
}


@pytest.mark.parametrize("case", JOINED)
def test_chains_of_one_history_are_joined(case: str) -> None:
    newer, others, expected = JOINED[case]
    history = alternate_history(newer, others)
    assert isinstance(history, AlternateHistory)
    assert history.older.seqno == history.newer.materialization.upto
    assert (history.slot, history.older.seqno) == expected


@pytest.mark.parametrize(
    ("newer", "others", "reason"),
    [
        (OWN, [chain(1, seqno=5)], NO_MATERIALIZATION),
        (chain(2, seqno=0), [chain(1, seqno=0)], NO_STATE),
        (RESCALED, [NEWER], INHERITED),
        (NEWER, [chain(n, log(0, 50, 60 + n), seqno=60 + n, upto=50) for n in (1, 2)], ONLY_ONE),
        (NEWER, [chain(1, log(0, 0, 40), seqno=40)], LOG_IS_CUT),
        # Generation 5 resumed from change 30; generation 0 had gone on to 60.
        (
            chain(6, log(5, 50, 80), seqno=80, upto=50, by=5, generation=5),
            [chain(1, log(0, 0, 60), seqno=60)],
            LOG_IS_CUT,
        ),
    ],
    ids=[
        "nothing to compare with",
        "nothing at all",
        "another parallelism",
        "the same one elsewhere",
        "a gap",
        "an abandoned generation",
    ],
)
def test_where_none_leads_there_the_reason_is_given(
    newer: Chain, others: list[Chain], reason: str
) -> None:
    assert alternate_history(newer, others) == reason


A, B, C = log(0, 0, 10), log(0, 10, 20), log(0, 20, 30)


def steps_of(older: Chain, newer: Chain) -> tuple[PathStep, ...]:
    history = alternate_history(newer, [older])
    assert isinstance(history, AlternateHistory)
    return alternate_path(0, history).steps


def test_an_alternate_path_changes_at_the_first_range_that_both_chains_name() -> None:
    found = steps_of(chain(1, A, B, seqno=20), chain(2, B, C, seqno=30, upto=18))
    assert found == (PathStep(A), PathStep(B), PathStep(C))


def test_without_a_common_range_the_older_log_counts_up_to_where_the_newer_one_begins() -> None:
    wide, late = log(0, 0, 25), log(0, 18, 30)
    found = steps_of(chain(1, wide, seqno=25), chain(2, late, seqno=30, upto=18))
    assert found == (PathStep(wide, SeqNo(18)), PathStep(late))


def test_checkpoints_that_differ_in_their_log_alone_begin_with_one_table() -> None:
    one = chain(1, A, seqno=10, upto=0).state
    other = chain(2, A, B, seqno=20, upto=0).state
    assert base_of(one) == base_of(other) != base_of(chain(3, B, seqno=20, upto=10).state)
    assert direct_path(0, one).steps == (PathStep(A),)
