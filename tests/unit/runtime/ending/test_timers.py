"""Timers at the end of the data: those that are there fire once, and lead to no others."""

import asyncio
from collections import Counter
from collections.abc import Callable
from functools import partial
from operator import itemgetter
from typing import Any

import pytest

from tests.support.pipelines import Outside, Portions, acted_on, config, effects, run
from tests.support.workers import runner_of
from tidelog import ConfigError, Job, StatefulProcessor, StatefulProcessorHandle
from tidelog.runtime.status.observe import status_of
from tidelog.storage.memory import MemoryStore

KEYS = 4
MINUTE = 60_000
END = 2**63 - 1
Next = Callable[[int, int], int]


class EveryMinute(StatefulProcessor):
    """Emits the times at which its timers fire; each registers the next one."""

    def __init__(self, following: Next) -> None:
        self._following = following

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.begun = handle.getValueState("begun", "yes boolean")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
        if not self.begun.get():
            self.begun.update((True,))
            # Not in the order of their times.
            for at in (MINUTE * 50, MINUTE * 40, MINUTE):
                self.handle.registerTimer(at)
        return ()

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Any:
        at, watermark = expiredTimerInfo.getExpiryTimeInMs(), timerValues.getCurrentWatermarkInMs()
        if at < MINUTE * 40 or watermark == END:
            self.handle.registerTimer(self._following(at, watermark))
        yield key[0], at // MINUTE


def minutes(source: Any, sink: Outside, following: Next) -> Job:
    job = Job("minutes")
    keyed = job.source(source).event_time(itemgetter(1)).key_by(itemgetter(0))
    ticks = keyed.transform_with_state(lambda: EveryMinute(following), time_mode="event")
    ticks.sink(sink)
    return job


def records() -> list[Any]:
    return [(f"k{n % KEYS}", n * MINUTE // KEYS) for n in range(KEYS * 10)]


def of_key(fired: list[Any], key: str) -> list[int]:
    return [at for k, at in fired if k == key]


NEXT: dict[str, Next] = {
    "a minute later": lambda at, watermark: max(at, watermark if watermark < END else 0) + MINUTE,
    "after the watermark": lambda _, watermark: watermark + MINUTE,
    "the latest": lambda _, watermark: max(watermark, END - 1),
}


@pytest.mark.parametrize("following", NEXT.values(), ids=NEXT)
def test_a_timer_that_registers_itself_again_ends_with_the_data(
    following: Next, logged: Any
) -> None:
    sink = Outside()
    job = minutes(Portions({"only": records()}, portion=40), sink, following)

    async def finished() -> int:
        runner = runner_of(job, MemoryStore(), config(), effects())
        await runner.run()
        return sum(each.unfired_timers for each in status_of(runner).operators)

    unfired = asyncio.run(finished())
    for key in range(KEYS):
        fired = of_key(sink.records, f"k{key}")
        assert fired == sorted(set(fired)) and fired[0] == 1
        # Where one was registered before the end for the last moment there is, it fires as well.
        assert [at for at in fired if at < END // MINUTE][-2:] == [40, 50]
    assert unfired >= 2 * KEYS
    assert sum(said["timers"] for said in logged("timers_not_fired")) == unfired
    assert {said["operator"] for said in logged("timers_not_fired")} == {"process"}


@pytest.mark.parametrize("portion", [2, 40], ids=["a minute at a time", "ten minutes at once"])
def test_a_timer_may_register_the_next_one_however_far_the_watermark_has_gone(portion: int) -> None:
    sink = Outside()
    source = Portions({"only": records()}, portion=portion)
    run(minutes(source, sink, lambda at, _: at + MINUTE), MemoryStore(), config())
    for key in range(KEYS):
        assert of_key(sink.records, f"k{key}") == [*range(1, 11), 40, 50]


def test_a_timer_that_fires_registers_no_earlier_one() -> None:
    job = minutes(Portions({"only": records()}, portion=40), Outside(), lambda at, _: at)
    with pytest.raises(ConfigError, match=r"after that of the timer that fires, 60000"):
        run(job, MemoryStore(), config())


def test_a_drain_fires_what_was_there_once_and_a_further_start_nothing() -> None:
    chosen = partial(config, finish_once=True)
    store, sink = MemoryStore(), Outside()
    source = Portions({"only": records()}, portion=4, pause=0.3)
    job = partial(minutes, source, sink, NEXT["a minute later"])
    acted_on(job(), store, lambda runner: runner.stop("halt"), at=1.5, settings=chosen())
    before = list(sink.records)
    drain: Any = lambda runner: runner.stop("end", drain=True)  # noqa: E731
    acted_on(job(), store, drain, at=1.0, settings=chosen(parallelism=3))
    fired = Counter(sink.records)
    assert len(before) < len(fired) and set(fired.values()) == {1}
    for key in range(KEYS):
        assert of_key(sink.records, f"k{key}")[-2:] == [40, 50]
    assert run(job(), store, chosen()).already_complete
    assert Counter(sink.records) == fired
