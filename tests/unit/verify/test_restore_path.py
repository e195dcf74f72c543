"""Paths that have steps in common are one tree, and each makes its own state."""

import msgspec

from tests.unit.verify.test_lineage import chain, inline, log
from tidelog.changelog.segment import LogRange
from tidelog.ids import SeqNo
from tidelog.verify.job.alternate_history import AlternateHistory, alternate_history
from tidelog.verify.job.restore_path import (
    RestorePath,
    Step,
    alternate_path,
    base_of,
    direct_path,
    path_trees,
)


def path(number: int, *parts: LogRange | bytes, seqno: int) -> RestorePath:
    return RestorePath(number, False, tuple(map(Step, parts)), SeqNo(seqno))


A, B, C = log(0, 0, 10), log(0, 10, 20), log(0, 20, 30)


def test_checkpoints_along_one_log_are_one_tree() -> None:
    paths = [
        path(0, A, seqno=8),
        path(1, A, inline(10, 15), seqno=15),
        path(2, A, B, seqno=20),
        path(3, A, B, C, seqno=30),
    ]
    (tree,) = path_trees(paths)
    assert tree.trunk is paths[3]
    branches = {branch.path.partition: (branch.after, len(branch.own)) for branch in tree.branches}
    assert branches == {0: (1, 0), 1: (1, 1), 2: (2, 0)}


def test_a_path_leaves_before_a_range_that_holds_more_than_its_checkpoint() -> None:
    cut = path(0, A, B, inline(15, 18), seqno=18)
    (tree,) = path_trees([cut, path(1, A, B, C, seqno=30)])
    assert [(branch.after, branch.own) for branch in tree.branches] == [(1, cut.steps[1:])]


def test_a_path_with_much_log_of_its_own_is_replayed_alone() -> None:
    long = msgspec.structs.replace(C, length=64 << 20)
    found = path_trees([path(0, A, long, seqno=29), path(1, A, B, C, seqno=30)])
    assert [tree.trunk.partition for tree in found] == [1, 0]
    assert not any(tree.branches for tree in found)


def test_an_alternate_path_goes_over_at_the_first_range_that_both_chains_name() -> None:
    older = chain(1, A, B, seqno=20)
    newer = chain(2, B, C, seqno=30, upto=18)
    history = alternate_history(newer, [older])
    assert isinstance(history, AlternateHistory)
    found = alternate_path(0, history)
    assert [step.log for step in found.steps] == [A, B, C] and found.seqno == 30
    assert all(step.end is None for step in found.steps)


def test_without_a_common_range_the_older_log_counts_up_to_where_the_newer_one_begins() -> None:
    wide, late = log(0, 0, 25), log(0, 18, 30)
    older, newer = chain(1, wide, seqno=25), chain(2, late, seqno=30, upto=18)
    history = alternate_history(newer, [older])
    assert isinstance(history, AlternateHistory)
    assert alternate_path(0, history).steps == (Step(wide, SeqNo(18)), Step(late))


def test_checkpoints_that_differ_in_their_log_alone_begin_with_one_table() -> None:
    one = chain(1, A, seqno=10, upto=0).state
    other = chain(2, A, B, seqno=20, upto=0).state
    assert base_of(one) == base_of(other) != base_of(chain(3, B, seqno=20, upto=10).state)
    assert direct_path(0, one).steps == (Step(A),)
