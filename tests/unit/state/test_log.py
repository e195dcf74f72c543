"""The log is cut so that completed checkpoints tell the history of changes without a gap."""

from random import Random

from tests.support.clock import VirtualClock
from tidelog.changelog.cadence import Cadence
from tidelog.changelog.chain import SubtaskLogChain
from tidelog.changelog.change import ChangeBatch
from tidelog.changelog.uploader import Uploader
from tidelog.checkpoint.manifest import MaterializationRef
from tidelog.effects import Effects, InlineOffload
from tidelog.ids import Generation, MaterializationId, SeqNo
from tidelog.state.log import SubtaskLog
from tidelog.storage.ledger import Ledger
from tidelog.storage.memory import MemoryStore


def log_of(flushes: int) -> SubtaskLog:
    """A log with one change per flush."""
    clock = VirtualClock()
    effects = Effects(clock, Random(1), InlineOffload())
    parts = (MemoryStore(), effects, Ledger(), Generation(0), "process", Cadence(clock))
    log = SubtaskLog(Uploader(*parts), SubtaskLogChain("count", 0))
    write(log, 0, flushes)
    return log


def write(log: SubtaskLog, first: int, end: int) -> None:
    for number in range(first, end):
        log.submit(ChangeBatch(SeqNo(number), [b"key"], [b"value"]))


def table(upto: int) -> MaterializationRef:
    return MaterializationRef(MaterializationId(upto), f"descriptor-{upto}", 1, SeqNo(upto), 1)


def held(log: SubtaskLog) -> list[int]:
    """The changes that the next checkpoint would name."""
    _, chain = log.capture()
    return [piece.first for piece in chain.pieces]


def test_what_no_completed_checkpoint_has_stays_when_the_table_covers_it() -> None:
    log = log_of(6)
    log.completed(SeqNo(4))
    assert held(log) == [0, 1, 2, 3, 4, 5], "nothing is materialized"
    log.materialized(table(6))
    assert held(log) == [4, 5], "the next checkpoint goes on where the last one ended"


def test_a_completed_checkpoint_lets_go_what_the_table_covers() -> None:
    log = log_of(6)
    log.materialized(table(5))
    assert held(log) == [0, 1, 2, 3, 4, 5]
    log.completed(SeqNo(6))
    assert held(log) == [5]


def test_without_a_checkpoint_the_log_is_cut_at_the_materialization_before() -> None:
    log = log_of(6)
    log.materialized(table(4))
    write(log, 6, 9)
    log.materialized(table(8))
    assert held(log) == [4, 5, 6, 7, 8], "two intervals are the most"
    write(log, 9, 12)
    log.materialized(table(12))
    assert held(log) == [8, 9, 10, 11]


def test_a_checkpoint_that_completes_late_brings_nothing_back() -> None:
    log = log_of(6)
    log.completed(SeqNo(6))
    log.materialized(table(6))
    log.completed(SeqNo(3))
    assert held(log) == [] and log.checkpointed == 6
