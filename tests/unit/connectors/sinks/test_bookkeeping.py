"""What sinks remember beside their output: all that a checkpoint may ask for, and no more."""

import asyncio
from collections import Counter
from contextlib import suppress

import pytest

from tests.support.clock import VirtualClock, in_virtual_time
from tests.support.depth import DEEP
from tests.support.pipelines import Portions, config
from tests.unit.connectors.sinks.outputs import KINDS, output
from tests.unit.connectors.sinks.trap import Trap, lay, trapped
from tidelog import Job, JobResult, JobRunner, Sink, TidelogError
from tidelog.ids import Slot
from tidelog.storage.memory import MemoryStore

NUMBERS = [(n,) for n in range(80)]
ALL = Counter(n for (n,) in NUMBERS)
RETAIN = 2


def start(
    sink: Sink,
    store: MemoryStore,
    *,
    seconds: float | None = None,
    retain: int = RETAIN,
    restore_slot: int | None = None,
    seed: int = 1,
) -> JobResult | None:
    """Run the job to its end, or for so long."""
    clock = VirtualClock()
    job = Job("numbers")
    job.source(Portions({"all": NUMBERS})).sink(sink)
    runner = JobRunner(
        job,
        store,
        config(parallelism=1, retain=retain),
        in_virtual_time(seed, clock),
        restore_slot=None if restore_slot is None else Slot(restore_slot),
    )

    async def scenario() -> JobResult | None:
        running = asyncio.ensure_future(runner.run())
        if seconds is not None:
            await clock.sleep(seconds)
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running
            return None
        return await running

    return asyncio.run(scenario())


# That Iceberg forgets commits is in its own test, too.
@pytest.mark.parametrize("kind", [k for k in KINDS[1:] if DEEP or k != "iceberg"])
def test_a_database_remembers_commits_of_retained_checkpoints_only(
    kind: str, request: pytest.FixtureRequest
) -> None:
    out, store = output(kind, request), MemoryStore()
    recorded = []
    for seed in range(10):
        start(out.sink(), store, seconds=2.5, seed=seed)
        recorded.append(out.recorded())
        assert Counter(out.shown()) <= ALL
    assert max(recorded) <= RETAIN + 1
    start(out.sink(), store)
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
            start(trapped(out.sink(), uncommitted), store, retain=20)
    shown = len(out.shown())
    last = newest_slot(store)

    start(out.sink(), store, retain=20, restore_slot=last - 1, seed=2)
    assert Counter(out.shown()) == ALL
    assert out.hidden() > 0
    # Its records, and those after it, are another branch of the job: they come again.
    start(out.sink(), store, retain=20, restore_slot=last, seed=3)
    assert Counter(out.shown()) - ALL == Counter(range(shown, len(NUMBERS)))
    assert out.hidden() == 0


def newest_slot(store: MemoryStore) -> int:
    names = [name for name in store._objects if name.startswith("checkpoints/")]
    return max(int("".join(filter(str.isdigit, name))) for name in names)
