"""Rules reach every subtask and come back with every checkpoint; a union is whole or not stored."""

from collections import Counter
from collections.abc import Iterable, Mapping, MutableMapping
from typing import Any

import pytest

from tests.support.pipelines import Outside, Portions, run
from tests.support.pressure import checkpoints
from tests.unit.runtime.ending.jobs import long, operator, run_for, run_until, settings, uneven
from tidelog import Checkpoint, CheckpointConfig, Job, UnalignedConfig
from tidelog.checkpoint.finished import fully_finished, partially_finished
from tidelog.checkpoint.manifest import decode_entry
from tidelog.errors import CheckpointFailedError
from tidelog.runtime.channels.messages import Batch
from tidelog.runtime.operators.operator import Operator, OperatorContext
from tidelog.storage.memory import MemoryStore

RULES = [(f"w{n}", 10 * n) for n in range(5)]


def priced(words: Portions, rules: Portions, sink: Outside) -> Job:
    """Every word with what is known of it; the rules are there long before the last words."""
    job = Job("priced")
    stream = job.source(words, name="words").key_by(lambda w: w)
    priced = stream.with_broadcast(
        job.source(rules, name="rules", parallelism=1),
        on_rule=lambda rule, known: known.update([rule]),
        on_record=lambda word, known: [(word, known.get(word), len(known))],
    )
    priced.sink(sink)
    return job


@pytest.mark.parametrize("parallelism", [1, 2, 3, 5])
def test_every_subtask_knows_every_rule(parallelism: int) -> None:
    words, sink = long(3), Outside()
    job = priced(words, Portions({"rules": RULES}), sink)
    run(job, MemoryStore(), settings(parallelism=parallelism))
    assert Counter(word for word, _, _ in sink.records) == Counter(words.records)
    known = [(word, factor) for word, factor, count in sink.records if count == len(RULES)]
    assert len(known) > len(sink.records) // 2
    assert set(known) == set(RULES)


@pytest.mark.parametrize("mode", ["off", "always"])
@pytest.mark.parametrize(("before", "after"), [(2, 2), (2, 3), (3, 1)])
def test_rules_of_a_source_that_finished_are_known_after_a_restart(
    before: int, after: int, mode: Any
) -> None:
    words, rules, sink, objects = long(3), Portions({"rules": RULES}), Outside(), MemoryStore()
    unaligned = UnalignedConfig(mode)
    chosen = settings(parallelism=before, unaligned=unaligned)
    run_for(priced(words, rules, sink), objects, 8.0, chosen)
    (last,) = checkpoints(objects)[-1:]
    assert fully_finished(operator(last, "rules"))
    seen = len(sink.records)
    again = settings(parallelism=after, unaligned=unaligned)
    run(priced(words, rules, sink), objects, again, seed=2)
    assert Counter(word for word, _, _ in sink.records) == Counter(words.records)
    later = sink.records[seen + 20 :]
    assert later and all(count == len(RULES) for _, _, count in later)
    assert {(word, factor) for word, factor, _ in later} <= set(RULES)


def test_what_a_rule_changes_within_a_value_is_in_every_checkpoint() -> None:
    def noted(rule: Any, known: MutableMapping[Any, Any]) -> None:
        known.setdefault("rules", []).append(rule)

    def answered(word: Any, known: Mapping[Any, Any]) -> Iterable[Any]:
        yield word, len(known.get("rules", ()))

    def job(sink: Outside) -> Job:
        made = Job("noted")
        rules = made.source(Portions({"r": RULES}, portion=1), name="rules", parallelism=1)
        words = made.source(long(6), name="words")
        words.with_broadcast(rules, on_rule=noted, on_record=answered).sink(sink)
        return made

    # A checkpoint a second, a rule in more than a second: most checkpoints are between two rules.
    sink, objects = Outside(), MemoryStore()
    for _ in range(5):
        run_for(job(sink), objects, 2.5)
    run(job(sink), objects, settings(), seed=9)
    assert max(count for _, count in sink.records) == len(RULES)


class Remembering(Operator):
    """Holds in a union state what its subtask has seen."""

    def open(self, context: OperatorContext) -> None:
        self._seen = context.operator_states.union(context.operator, "seen")

    def process(self, batch: Batch) -> Iterable[Batch]:
        self._seen.update([*self._seen, *batch.records])
        return (batch,)


def remembering(sink: Outside) -> Job:
    job = Job("remembering")
    stream = job.source(uneven(4), name="left")._then("remember", Remembering)
    stream.key_by(lambda w: w).count().sink(sink)
    return job


def test_checkpoints_fail_while_a_union_has_lost_a_part_and_succeed_when_all_have_ended() -> None:
    sink, objects = Outside(), MemoryStore()
    schedule = CheckpointConfig(interval=1.0, timeout=60.0, tolerable_failures=10_000)
    one_by_one = settings(parallelism=2, checkpoint=schedule, finish_once=True)
    run(remembering(sink), objects, one_by_one)
    taken = [operator(checkpoint, "left") for checkpoint in checkpoints(objects)]
    assert not any(map(partially_finished, taken))
    assert fully_finished(taken[-1]) and len(taken) > 1
    assert dict(sink.records) == Counter(uneven(4).records)
    with pytest.raises(CheckpointFailedError, match=r"union state 'seen' of operator 'remember'"):
        impatient = CheckpointConfig(interval=1.0, timeout=60.0, tolerable_failures=1)
        chosen = settings(parallelism=2, checkpoint=impatient, finish_once=True)
        run(remembering(Outside()), MemoryStore(), chosen)


def seen_by(objects: MemoryStore) -> list[Counter[bytes]]:
    """The union state of each subtask in the newest checkpoint of the newest generation."""
    names = sorted(name for name in objects._objects if name.startswith("checkpoints/"))
    newest = decode_entry(objects._objects[names[-1]], names[-1]) if names else None
    if not isinstance(newest, Checkpoint):
        return []
    subtasks = operator(newest, "left").subtasks
    return [Counter(e for p in s.operator_state for e in p.entries) for s in subtasks]


def test_a_union_comes_back_whole_in_every_subtask() -> None:
    sink, objects = Outside(), MemoryStore()
    run_until(remembering(sink), objects, lambda _: any(seen_by(objects)), settings(parallelism=2))
    held = sum(seen_by(objects), Counter())
    more = settings(parallelism=3)
    run_until(remembering(sink), objects, lambda _: len(seen_by(objects)) == 3, more)
    restored = seen_by(objects)
    assert len(restored) == 3 and held
    assert all(held <= entries for entries in restored)
