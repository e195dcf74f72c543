"""Rules reach every subtask and come back with every checkpoint."""

from collections import Counter
from collections.abc import Iterable, Mapping, MutableMapping
from typing import Any

import pytest

from tests.support.pipelines import Outside, Portions, run
from tests.support.pressure import checkpoints
from tests.unit.runtime.ending.jobs import long, operator, run_for, settings
from tidelog import Job, UnalignedConfig
from tidelog.checkpoint.finished import fully_finished
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
