"""The world of one run: the store, the outside, and an operator who starts the job again.

Invariants: faults come until `chaos_s` and then stop for good; from then on one incarnation has
all the time it needs to end the job; in the end a clean start leaves exactly what is retained.
"""

import asyncio
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Final

from tidelog.effects import SystemClock
from tidelog.runtime.config import JobConfig
from tidelog.runtime.runner import JobRunner
from tidelog.simulate.barriers import Barriers
from tidelog.simulate.census import census
from tidelog.simulate.incarnation import Incarnation, told
from tidelog.simulate.loop import VirtualLoop, waiting
from tidelog.simulate.machines import Machines
from tidelog.simulate.network import Network, StoreClient, Weather
from tidelog.simulate.plan import make_plan
from tidelog.simulate.process import Process, effects_of
from tidelog.simulate.referee import Referee
from tidelog.simulate.requests import ask_for_savepoints
from tidelog.simulate.scenario import Scenario
from tidelog.simulate.settings import RETRY, make_settings
from tidelog.simulate.sink import Outside, OutsideSink
from tidelog.simulate.trace import Trace
from tidelog.simulate.violation import Property
from tidelog.storage.port import ObjectStore
from tidelog.storage.retry import RetryingStore

_BOUND_S: Final = 60.0
"""Virtual seconds within which a job ends once faults have stopped."""
_RESTART_S: Final = 0.5
_SETTLED_S: Final = 20.0
"""No request is on its way for longer, a cut line apart."""
_SKEW_MS: Final = 3_600_000


class World:
    """One run."""

    def __init__(
        self, seed: int, scenario: Scenario, directory: Path, trace: Trace, loop: VirtualLoop
    ) -> None:
        self.scenario = scenario
        self.directory = directory
        self.barriers = Barriers()
        self.incarnations = 0
        self._seed = f"{scenario.name}/{seed}"
        self._loop = loop
        self._trace = trace
        self._rng = rng = self._random("operator")
        self.plan = make_plan(self._random("plan"))
        self._settings = make_settings(
            self._random("settings"), scenario, self.plan.parallelism, directory / "work"
        )
        answers = scenario.lose_answer == scenario.twice == 0
        self.referee = Referee(trace, loop.time, self._objects, self.plan.expected(), answers)
        self.network = Network(Weather(scenario, self._random("weather")), trace, self.referee)
        self._outsides = {sink: Outside(sink, self.referee) for sink in self.plan.expected()}
        self._threads = rng.random() < scenario.threads
        self._retries = rng.random() < scenario.retries
        self._skewed = rng.random() < scenario.skew
        self._rescales = rng.random() < scenario.rescale and self.plan.rescalable
        local = rng.random() < scenario.local_copies
        self._machines = Machines(directory / "machines", rng) if local else None
        self._alive: list[Incarnation] = []
        self._sleep = SystemClock().sleep
        """On the virtual loop it takes no time."""

    async def run(self) -> None:
        """The whole run; ends early with a violation."""
        operating = asyncio.ensure_future(self._operate())
        violated = asyncio.ensure_future(self.referee.violated.wait())
        await asyncio.wait([operating, violated], return_when=asyncio.FIRST_COMPLETED)
        violated.cancel()
        if operating.done():
            operating.result()
        operating.cancel()
        for incarnation in list(self._alive):
            await incarnation.crash()

    def _random(self, purpose: str) -> Random:
        return Random(f"{self._seed}/{purpose}")

    def _objects(self) -> dict[str, bytes]:
        return self.network.objects()

    async def _operate(self) -> None:
        """Start the job until it has ended, then look at what is left."""
        ending = asyncio.ensure_future(self._end_faults())
        try:
            while not await self._live_once():
                await self._sleep(self._rng.random() * _RESTART_S)
        finally:
            ending.cancel()
            self.network.weather.calm = True
        # Whoever was left behind wakes up, and what is still on its way arrives.
        await self._sleep(_SETTLED_S + self.scenario.chaos_s)
        for zombie in list(self._alive):
            await zombie.crash()
        self.referee.check_outputs()
        await self._take_census()

    async def _end_faults(self) -> None:
        await self._sleep(self.scenario.chaos_s)
        self.network.weather.calm = True
        self._note("faults stop")

    async def _live_once(self) -> bool:
        """One incarnation, until it ended, was killed or superseded; whether the job is done."""
        incarnation = self._start()
        rng, rates = self._rng, self.scenario
        calm = self.network.weather.calm
        kills = not calm and rng.random() < rates.crash
        replaces = not calm and not kills and rng.random() < rates.supersede
        patience = _BOUND_S + self.scenario.chaos_s
        if kills or replaces:
            patience = rng.random() * rates.chaos_s / 2
        # Half of the misfortunes come at the worst moment.
        moment = kills or replaces if rng.random() < 0.5 else False
        doubt = asyncio.ensure_future(incarnation.process.in_doubt.wait())
        asking = self._ask(incarnation) if rng.random() < rates.savepoints and not calm else None
        waited = [incarnation.running, doubt] if moment else [incarnation.running]
        await asyncio.wait(waited, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        doubt.cancel()
        if asking is not None:
            asking.cancel()
        if incarnation.running.done():
            return self._ended(incarnation)
        if kills:
            self._note(f"{incarnation.process.name} is killed")
            self._alive.remove(incarnation)
            await incarnation.crash()
            if self._machines is not None:
                self._note(f"restart {self._machines.after_crash()}")
        elif replaces:
            self._leave_behind(incarnation)
        else:
            self.referee.blame(
                Property.PROGRESS,
                f"the job runs {patience} s without an end, although faults have stopped; "
                + "tasks wait in:\n  "
                + "\n  ".join(waiting(self._loop)),
            )
        return False

    def _ask(self, incarnation: Incarnation) -> "asyncio.Task[None]":
        """Ask for savepoints as long as the faults last."""
        asking = asyncio.ensure_future(ask_for_savepoints(incarnation.runner, self._rng))
        left = max(0.0, self.scenario.chaos_s - self._loop.time())
        self._loop.call_later(left, asking.cancel)
        return asking

    def _leave_behind(self, incarnation: Incarnation) -> None:
        """The operator takes it for dead, but it is not."""
        self._note(f"{incarnation.process.name} is left behind")
        if self._rng.random() < self.scenario.partition:
            back_at = self._loop.time() + self._rng.random() * self.scenario.chaos_s
            incarnation.process.cut_off_until = back_at
        if self._machines is not None:
            self._machines.move()
        incarnation.running.add_done_callback(lambda _: self._ended(incarnation))

    def _start(self) -> Incarnation:
        self.incarnations += 1
        process = Process(f"p{self.incarnations}", self._random(f"p{self.incarnations}"))
        ahead = self._rng.randrange(-_SKEW_MS, _SKEW_MS) if self._skewed else 0
        booted = self._rng.random() * self._loop.time()
        effects = effects_of(process, threads=self._threads, ahead_ms=ahead, booted=booted)
        store: ObjectStore = StoreClient(self.network, process)
        if self._retries:
            store = RetryingStore(store, RETRY, effects)
        fails = self.scenario.sink_fails

        def sink(name: str) -> OutsideSink:
            share = 0.0 if self.network.weather.calm else fails
            return OutsideSink(self._outsides[name], process, share, process.rng)

        job = self.plan.job(self._loop.time, sink)
        runner = JobRunner(job, store, self._shape(), effects)
        incarnation = Incarnation(process, runner)
        self._note(f"{process.name} starts")
        incarnation.start(lambda: self._started(incarnation))
        self._alive.append(incarnation)
        return incarnation

    def _shape(self) -> JobConfig:
        """The settings of the next incarnation."""
        settings = self._settings
        if self._machines is not None:
            settings = replace(settings, local_recovery=self._machines.local_copies)
        if not self._rescales:
            return settings
        changelog = self._rng.random() < self.scenario.changelog
        parallelism = self._rng.randrange(1, 5)
        self._note(f"parallelism {parallelism}, changelog {'on' if changelog else 'off'}")
        return replace(settings, parallelism=parallelism, changelog=changelog)

    def _started(self, incarnation: Incarnation) -> None:
        runner = incarnation.runner
        slot = runner.restored.slot if runner.restored is not None else None
        self._note(f"{incarnation.process.name} is generation {runner.generation}, from {slot}")
        self.barriers.watch(runner)

    def _ended(self, incarnation: Incarnation) -> bool:
        """Judge how an incarnation ended; True when the job is done."""
        if incarnation in self._alive:
            self._alive.remove(incarnation)
        error = incarnation.error
        if error is not None:
            self._note(f"{incarnation.process.name} ended with {told(error)}")
        unexplained = incarnation.unexplained(self.referee.newest_generation)
        if unexplained is not None:
            self.referee.blame(
                Property.NO_DEFECT, f"{incarnation.process.name} ended with {unexplained!r}"
            )
        result = incarnation.result
        if result is None:
            return False
        how = "well" if result.stopped is None else f"with savepoint {result.stopped.slot}"
        self._note(f"{incarnation.process.name} ended {how}")
        return result.stopped is None

    def _note(self, what: str) -> None:
        self._trace.add(self._loop.time(), "--", what)

    async def _take_census(self) -> None:
        """Start a job that has ended: it must leave what is retained, and nothing else."""
        # A slot that came back from the dead hides what it names from the first clean start.
        for _ in range(2 if self.referee.resurrected else 1):
            incarnation = self._start()
            await asyncio.wait([incarnation.running], timeout=_BOUND_S)
            if not self._ended(incarnation):
                self.referee.blame(Property.PROGRESS, "a job that has ended does not start again")
                return
        wrong = census(self._objects(), self._settings.retain)
        if wrong is not None:
            self.referee.blame(Property.CENSUS, wrong)
