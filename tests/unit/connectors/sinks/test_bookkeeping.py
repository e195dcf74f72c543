"""What sinks remember beside their output: all that a checkpoint may ask for, and no more."""

from collections import Counter
from functools import partial

import pytest

from tests.faults.counting import start
from tests.support.depth import DEEP
from tests.support.pipelines import acted_on, config
from tests.unit.connectors.sinks.job import copying
from tests.unit.connectors.sinks.outputs import KINDS, output
from tests.unit.connectors.sinks.trap import Trap, lay, trapped
from tidelog import JobConfig, TidelogError
from tidelog.storage import object_names
from tidelog.storage.memory import MemoryStore

NUMBERS = [(n,) for n in range(80)]
ALL = Counter(n for (n,) in NUMBERS)
RETAIN = 2


numbers = partial(copying, NUMBERS)


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

    start(numbers(out.sink()), store, retaining(20), restore_slot=last - 1)
    assert Counter(out.shown()) == ALL
    assert out.hidden() > 0
    # Its records, and those after it, are another branch of the job: they come again.
    start(numbers(out.sink()), store, retaining(20), restore_slot=last, seed=3)
    assert Counter(out.shown()) - ALL == Counter(range(shown, len(NUMBERS)))
    assert out.hidden() == 0
