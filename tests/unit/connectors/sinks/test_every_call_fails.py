"""Whatever call fails in a pre-commit, a commit or a recovery: every record is shown once.

What sinks remember beside their output: all that a checkpoint may ask for, and no more.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count

import pytest

from tests.faults.counting import start
from tests.support.depth import DEEP, more_in_depth, one_by_one
from tests.support.pipelines import acted_on, config, run
from tests.unit.connectors.sinks.job import copying
from tests.unit.connectors.sinks.outputs import KINDS, Output, output
from tests.unit.connectors.sinks.trap import Phase, Trap, lay, trapped
from tidelog import CheckpointConfig, JobConfig, TidelogError
from tidelog.errors import CheckpointFailedError, StoreUnreachableError, UserFunctionError
from tidelog.storage import object_names
from tidelog.storage.memory import MemoryStore

NUMBERS = [(n,) for n in range(60)]
LASTING = {"one call": 1, "all calls from there on": 1000}
AFTER = {"after": True, "before": False}
"""Beginning with what is harder: the call has worked, and its caller hears that it has not."""


def copy(out: Output, store: MemoryStore, *traps: Trap) -> None:
    """All numbers, several buffers and so several files in each checkpoint."""
    sink = out.sink()
    for trap in traps:
        sink = trapped(sink, trap)
    run(
        copying(NUMBERS, sink),
        store,
        config(parallelism=1, checkpoint=CheckpointConfig(interval=4.0)),
    )


def complete(out: Output, store: MemoryStore) -> None:
    """A further start changes nothing but what lies hidden."""
    copy(out, store)
    assert sorted(out.shown()) == [n for (n,) in NUMBERS]
    assert out.hidden() == 0


def every_call(
    kind: str, trap: Trap, request: pytest.FixtureRequest
) -> Iterator[tuple[Trap, Output]]:
    """A trap for the first call, for the second, and so on, each with an output of its own."""
    # All calls would take Iceberg a minute.
    for first in count(step=more_in_depth(13, 1) if kind == "iceberg" else 1):
        here = replace(trap, first=first)
        with pytest.MonkeyPatch.context() as monkeypatch:
            lay(here, kind, monkeypatch)
            yield here, output(kind, request, first)
        if not here.fired:
            assert first >= 3, "the sink calls nothing that could fail"
            return


# Kafka's client reports no failure of what waits in it: `test_kafka_sink` has its pre-commits.
@one_by_one(kind=KINDS[:4], turns={"once": (2,), "twice": (2, 3)}, lasting=LASTING, after=AFTER)
def test_a_pre_commit_that_failed_is_made_up_for_by_the_next(
    kind: str, turns: tuple[int, ...], lasting: int, after: bool, request: pytest.FixtureRequest
) -> None:
    for trap, out in every_call(kind, Trap("pre_commit", turns, 0, lasting, after), request):
        store = MemoryStore()
        copy(out, store, trap)
        assert sorted(out.shown()) == [n for (n,) in NUMBERS], trap
        complete(out, store)


@dataclass
class Failing(Trap):
    """A phase that fails whole."""

    error: TidelogError = field(kw_only=True)

    @contextmanager
    def during(self, phase: Phase) -> Iterator[None]:
        self._turns += phase == self.phase
        if phase == self.phase and self._turns in self.turns:
            raise self.error
        yield


@pytest.mark.parametrize("kind", KINDS)
def test_a_pre_commit_that_failed_is_a_failed_checkpoint_of_every_sink(
    kind: str, request: pytest.FixtureRequest
) -> None:
    out, store = output(kind, request), MemoryStore()
    away = StoreUnreachableError("the server", found="no answer", action="bring it back")
    failing = trapped(out.sink(), Failing("pre_commit", (2,), error=away))
    schedule = CheckpointConfig(interval=1.0, tolerable_failures=0)
    with pytest.raises(CheckpointFailedError, match="the server; found no answer"):
        run(copying(NUMBERS, failing), store, config(parallelism=1, checkpoint=schedule))
    failing = trapped(out.sink(), Failing("pre_commit", (2,), error=away))
    schedule = CheckpointConfig(interval=1.0, tolerable_failures=1)
    run(copying(NUMBERS, failing), store, config(parallelism=1, checkpoint=schedule))
    assert sorted(out.shown()) == [n for (n,) in NUMBERS]


@pytest.mark.parametrize("kind", KINDS)
def test_a_value_that_is_refused_in_a_pre_commit_stops_the_job(
    kind: str, request: pytest.FixtureRequest
) -> None:
    refused = UserFunctionError("sink", found="a value that it does not take", action="change it")
    failing = trapped(output(kind, request).sink(), Failing("pre_commit", (2,), error=refused))
    with pytest.raises(UserFunctionError, match="a value that it does not take"):
        run(copying(NUMBERS, failing), MemoryStore(), config(parallelism=1))


@one_by_one(kind=KINDS, lasting=LASTING, after=AFTER)
def test_a_commit_that_failed_is_made_up_for_by_the_next_start(
    kind: str, lasting: int, after: bool, request: pytest.FixtureRequest
) -> None:
    for trap, out in every_call(kind, Trap("commit", (2,), 0, lasting, after), request):
        store = MemoryStore()
        try:
            copy(out, store, trap)
        except TidelogError:
            copy(out, store)
        complete(out, store)


@one_by_one(kind=KINDS, lasting=LASTING, after=AFTER)
def test_a_recovery_that_failed_is_made_up_for_by_the_next_start(
    kind: str, lasting: int, after: bool, request: pytest.FixtureRequest
) -> None:
    for trap, out in every_call(kind, Trap("recover", (1,), 0, lasting, after), request):
        store, uncommitted = MemoryStore(), Trap("commit", (2,), 0, 1000)
        with pytest.MonkeyPatch.context() as monkeypatch:
            lay(uncommitted, kind, monkeypatch)
            with pytest.raises(TidelogError):
                copy(out, store, uncommitted)
        try:
            copy(out, store, trap)
        except TidelogError:
            copy(out, store)
        complete(out, store)


MORE_NUMBERS = [(n,) for n in range(80)]
ALL = Counter(n for (n,) in MORE_NUMBERS)
RETAIN = 2


numbers = partial(copying, MORE_NUMBERS)


def retaining(checkpoints: int) -> JobConfig:
    return config(parallelism=1, retain=checkpoints)


# That Iceberg forgets commits is in its own test, too.
@pytest.mark.parametrize("kind", [k for k in KINDS[1:] if DEEP or k != "iceberg"])
def test_a_database_remembers_commits_of_retained_checkpoints_only(
    kind: str, request: pytest.FixtureRequest
) -> None:
    out, store = output(kind, request), MemoryStore()
    recorded = []
    for _ in range(6):
        acted_on(numbers(out.sink()), store, at=1.5, settings=retaining(RETAIN), crash=True)
        recorded.append(out.recorded())
        assert Counter(out.shown()) <= ALL
    assert max(recorded) <= RETAIN + 1
    start(numbers(out.sink()), store, retaining(RETAIN))
    assert Counter(out.shown()) == ALL
    assert (out.recorded() <= RETAIN + 1, out.hidden()) == (True, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_transaction_that_a_retained_checkpoint_names_waits_for_its_restore(
    kind: str, request: pytest.FixtureRequest
) -> None:
    """A start from the checkpoint before removes only what no checkpoint names."""
    out, store = output(kind, request), MemoryStore()
    uncommitted = Trap("commit", (3,), count=1000)
    with pytest.MonkeyPatch.context() as monkeypatch:
        lay(uncommitted, kind, monkeypatch)
        with pytest.raises(TidelogError):
            start(numbers(trapped(out.sink(), uncommitted)), store, retaining(20), seed=1)
    shown = len(out.shown())
    last = max(filter(None, map(object_names.slot_of, store._objects)))

    start(numbers(out.sink()), store, retaining(20), restore_checkpoint=last - 1)
    assert Counter(out.shown()) == ALL
    assert out.hidden() > 0
    # Its records, and those after it, are another branch of the job: they come again.
    start(numbers(out.sink()), store, retaining(20), restore_checkpoint=last, seed=3)
    assert Counter(out.shown()) - ALL == Counter(range(shown, len(MORE_NUMBERS)))
    assert out.hidden() == 0
