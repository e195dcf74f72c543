"""Two chains are joined only where they are known to tell the same history."""

from tidelog.changelog.block import seal
from tidelog.changelog.change import ChangeBatch
from tidelog.changelog.segment import LogRange
from tidelog.checkpoint.manifest import MaterializationRef, SubtaskState
from tidelog.ids import Generation, KeyGroup, MaterializationId, SeqNo, Slot
from tidelog.storage import object_names
from tidelog.verify.job.alternate_history import (
    LOG_IS_CUT,
    NO_MATERIALIZATION,
    ONLY_ONE,
    AlternateHistory,
    Chain,
    alternate_history,
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


def meeting(history: AlternateHistory | str) -> tuple[int, int]:
    """Slot of the older chain, and the change where the newer log takes over."""
    assert isinstance(history, AlternateHistory)
    assert history.newer.materialization is not None
    assert history.older.seqno == history.newer.materialization.upto
    return history.slot, history.older.seqno


def test_a_log_from_the_beginning_leads_to_the_first_materialization() -> None:
    older = chain(1, log(0, 0, 60), seqno=60)
    newer = chain(2, log(0, 50, 80), seqno=80, upto=50)
    assert meeting(alternate_history(newer, [older])) == (1, 50)


def test_without_a_materialization_there_is_nothing_to_compare() -> None:
    assert (
        alternate_history(chain(2, log(0, 0, 9), seqno=9), [chain(1, seqno=5)])
        == NO_MATERIALIZATION
    )


def test_the_same_materialization_in_other_slots_is_only_one() -> None:
    chains = [chain(slot, log(0, 50, 60 + slot), seqno=60 + slot, upto=50) for slot in (1, 2, 3)]
    assert alternate_history(chains[2], chains[:2]) == ONLY_ONE


def test_a_gap_between_the_older_log_and_the_newer_materialization_is_no_way() -> None:
    older = chain(1, log(0, 0, 40), seqno=40)
    newer = chain(2, log(0, 50, 80), seqno=80, upto=50)
    assert alternate_history(newer, [older]) == LOG_IS_CUT


def test_a_newer_log_that_begins_before_its_materialization_fills_the_gap() -> None:
    older = chain(1, log(0, 0, 40), seqno=40)
    newer = chain(2, log(0, 30, 80), seqno=80, upto=50)
    assert meeting(alternate_history(newer, [older])) == (1, 40)


def test_what_an_older_range_holds_beyond_its_checkpoint_counts() -> None:
    older = chain(1, log(0, 0, 55), seqno=40)
    newer = chain(2, log(0, 50, 80), seqno=80, upto=50)
    assert meeting(alternate_history(newer, [older])) == (1, 50)


def test_inline_blocks_are_part_of_the_older_log() -> None:
    older = chain(1, log(0, 0, 30), seqno=50, tail=(inline(30, 50),))
    newer = chain(2, log(0, 50, 80), seqno=80, upto=50)
    assert meeting(alternate_history(newer, [older])) == (1, 50)


def test_the_newest_older_materialization_that_leads_there_is_taken() -> None:
    none = chain(1, log(0, 0, 60), seqno=60)
    first = chain(2, log(0, 20, 60), seqno=60, upto=20)
    cut = chain(3, log(0, 30, 45), seqno=45, upto=30)
    newer = chain(4, log(0, 50, 80), seqno=80, upto=50)
    assert meeting(alternate_history(newer, [none, first, cut])) == (2, 50)


def test_what_an_abandoned_generation_logged_is_no_history_of_its_successor() -> None:
    # Generation 5 resumed from change 30; generation 0 had gone on to 60.
    abandoned = chain(1, log(0, 0, 60), seqno=60)
    newer = chain(6, log(5, 50, 80), seqno=80, upto=50, by=5, generation=5)
    assert alternate_history(newer, [abandoned]) == LOG_IS_CUT


def test_history_before_the_successor_took_over_is_shared() -> None:
    older = chain(1, log(0, 0, 60), seqno=60)
    # Materialized by generation 0 up to 30, and from there on logged by generation 5.
    newer = chain(6, log(5, 30, 80), seqno=80, upto=30, by=0, generation=5)
    assert meeting(alternate_history(newer, [older])) == (1, 30)


def test_a_successor_that_kept_the_log_joins_where_it_was_resumed() -> None:
    older = chain(1, log(0, 0, 60), seqno=30)
    newer = chain(6, log(0, 10, 30), log(5, 30, 80), seqno=80, upto=20, by=0, generation=5)
    assert meeting(alternate_history(newer, [older])) == (1, 20)
    # Materialized later than that: the older log may not lead beyond the change it resumed from.
    later = chain(6, log(0, 10, 15), log(5, 15, 80), seqno=80, upto=20, by=5, generation=5)
    assert meeting(alternate_history(later, [older])) == (1, 15)
