"""The world of one run: the store, the outside, and an operator who starts the job again.

Invariants: faults come until `chaos_s` and then stop for good; from then on one incarnation has
all the time it needs to end the job; in the end a clean start leaves exactly what is retained.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, Final

from tests.simulator.checks.checker import Checker
from tests.simulator.checks.violation import Property
from tests.simulator.jobs.outputs import Output, SimulatedSink, make_output
from tests.simulator.jobs.plan import Records, Version
from tests.simulator.machine.incarnation import Incarnation, ask_for_savepoints, drain_when, name_of
from tests.simulator.machine.loop import VirtualLoop, waiting
from tests.simulator.machine.network import Network, StoreClient, Truth, Weather
from tests.simulator.machine.process import Machines, Process, effects_of
from tests.simulator.run.scenario import CHANGELOG, RETRY, Scenario, make_settings
from tests.simulator.run.trace import Trace
from tests.support.workers import runner_of_actors
from tidelog import JobConfig, JobResult, JobRunner, RestoreFrom
from tidelog.ids import Generation
from tidelog.storage.port import ObjectStore
from tidelog.storage.retry import RetryingStore

_BOUND_S: Final = 180.0
"""Virtual seconds within which a job ends once faults have stopped.

Where the log may hold less than one row, it goes on by a row per upload.
"""
_RESTART_S: Final = 0.5
_SETTLED_S: Final = 20.0
"""No request is on its way for longer, a cut line apart."""
_SKEW_MS: Final = 3_600_000
_STEPS_OF_A_START: Final = 300
_WIRE_S: Final = 0.3
_LATE: Final = 0.05
"""How long a message between workers takes at most, and the share of those that take any time."""
_LOSES: Final = 0.3
"""Share of the incarnations with workers that lose one of them."""
_STEPS: Final = 3000
"""Steps of a process within which it may be held."""


class World:
    def __init__(
        self, seed: int, scenario: Scenario, directory: Path, trace: Trace, loop: VirtualLoop
    ) -> None:
        self.scenario = scenario
        self.directory = directory
        self.incarnations = 0
        self._seed = f"{scenario.name}/{seed}"
        self._loop = loop
        self._trace = trace
        self._rng = rng = self._random("operator")
        self.plan = scenario.jobs(self._random("plan"))
        self._settings = make_settings(
            self._random("settings"), scenario, self.plan, directory / "work"
        )
        truth = Truth("sim://store")
        self.checker = self._checker(truth, self.plan.expected)
        self.referees = [self.checker]
        """One for each store."""
        weather = Weather(scenario, self._random("weather"))
        self.network = Network(truth, weather, trace, self.checker)
        self._outputs: dict[str, Output] = {}
        self._rescales = rng.random() < scenario.rescale and self.plan.rescalable
        local = rng.random() < scenario.local_copies
        self._machines = Machines(directory / "machines", rng) if local else None
        self._alive: list[Incarnation] = []
        self._versions: dict[Generation, Version] = {}

    async def run(self) -> None:
        """The whole run; ends early with a violation."""
        operating = asyncio.ensure_future(self._operate())
        violated = asyncio.ensure_future(self.checker.violated.wait())
        await asyncio.wait([operating, violated], return_when=asyncio.FIRST_COMPLETED)
        violated.cancel()
        if operating.done():
            operating.result()
        operating.cancel()
        for incarnation in list(self._alive):
            await incarnation.crash()

    def committing(
        self, sink: str, process: Process, transaction: bytes, records: Sequence[Any]
    ) -> None:
        """A simulated sink is about to make records visible."""
        self.checker.committing(sink, process, transaction, records)

    def _checker(self, truth: Truth, expected: Records) -> Checker:
        exactly_once = self.plan.mode == "exactly-once"
        return Checker(self._trace, truth, dict(expected), exactly_once=exactly_once)

    def _random(self, purpose: str) -> Random:
        return Random(f"{self._seed}/{purpose}")

    def _output(self, sink: str) -> Output:
        if sink not in self._outputs:
            disk = self.directory / "outputs" if self.scenario.sinks_on_disk else None
            rng = self._random(f"output/{sink}")
            self._outputs[sink] = make_output(rng, sink, disk, self.committing)
        return self._outputs[sink]

    async def _operate(self) -> None:
        """Start the job until it has ended, then look at what is left."""
        ending = asyncio.ensure_future(self._end_faults())
        losing = asyncio.ensure_future(self._lose_objects())
        try:
            while not await self._live_once():
                await asyncio.sleep(self._rng.random() * _RESTART_S)
        finally:
            ending.cancel()
            losing.cancel()
            self.network.weather.calm = True
        # Whoever was left behind wakes up, and what is still on its way arrives.
        await asyncio.sleep(_SETTLED_S + self.scenario.chaos_s)
        for zombie in list(self._alive):
            await zombie.crash()
        self._check_outputs()
        await self._take_census()

    def _check_outputs(self) -> None:
        for name, output in self._outputs.items():
            self.checker.found(name, output.visible())
        self.checker.check_outputs(self.plan.objection)

    async def _end_faults(self) -> None:
        await asyncio.sleep(self.scenario.chaos_s)
        self.network.weather.calm = True
        self._note("faults stop")

    async def _lose_objects(self) -> None:
        """While faults last, lose some objects under a job that runs with no checkpoint under way:
        what ends it later sees all of that.
        """
        rng, truth = self._random("losses"), self.network.truth
        while self.scenario.loses_objects and not self.network.weather.calm:
            await asyncio.sleep(rng.random())
            runners = [each.runner for each in self._alive if each.runner.running]
            drivers = [each.incarnation.driver for each in runners if each.incarnation is not None]
            if not any(d.coordinator.in_progress is None for d in drivers):
                continue
            if any(d.coordinator.finished or d.reports.decisions for d in drivers):
                continue
            share = rng.choice((0.1, 0.5, 1.0))
            data = [name for name in sorted(truth.objects()) if not name.startswith("checkpoints/")]
            lost = [name for name in data if rng.random() < share]
            truth.lose(lost)
            self._note(f"{len(lost)} objects are lost")

    async def _live_once(self) -> bool:
        """One incarnation, until it ended, was killed or superseded; whether the job is done."""
        incarnation = self._start()
        process, runner = incarnation.process, incarnation.runner
        rng, rates, weather = self._rng, self.scenario, self.network.weather
        calm = weather.calm
        kills = not calm and rng.random() < rates.crash
        replaces = not calm and not kills and rng.random() < rates.supersede
        patience = _BOUND_S + rates.chaos_s
        waited: list[asyncio.Future[Any]] = [asyncio.ensure_future(process.suspended.wait())]
        if kills or replaces:
            patience = rng.random() * rates.chaos_s / 2
            # Half of the misfortunes come at the worst moment.
            if rng.random() < 0.5:
                waited.append(asyncio.ensure_future(process.in_doubt.wait()))
        asking = []
        if rng.random() < rates.savepoints:
            asking.append(ask_for_savepoints(runner, rng, rates.drains, weather))
        if rates.endless:
            asking.append(drain_when(self.checker.outputs_are_complete, runner))
        helping = [*waited, *map(asyncio.ensure_future, asking)]
        await asyncio.wait(
            [incarnation.running, *waited], timeout=patience, return_when=asyncio.FIRST_COMPLETED
        )
        if process.suspended.is_set() and not kills:
            self._note(f"{process.name} is held")
            replaces = True
        for task in helping:
            task.cancel()
        if incarnation.running.done():
            return self._ended(incarnation)
        if kills:
            self._note(f"{process.name} is killed")
            self._alive.remove(incarnation)
            await incarnation.crash()
            if self._machines is not None:
                self._note(f"restart {self._machines.after_crash()}")
        elif replaces:
            self._leave_behind(incarnation)
        else:
            self.checker.blame(
                Property.PROGRESS,
                f"the job runs {patience} s without an end, although faults have stopped; "
                + "tasks wait in:\n  "
                + "\n  ".join(waiting(self._loop)),
            )
        return False

    def _leave_behind(self, incarnation: Incarnation) -> None:
        """The operator takes it for dead, but it is not."""
        self._note(f"{incarnation.process.name} is left behind")
        if self._rng.random() < 0.5:
            back_at = self._loop.time() + self._rng.random() * self.scenario.chaos_s
            incarnation.process.cut_off_until = back_at
        if self._machines is not None:
            self._machines.move()
        incarnation.running.add_done_callback(lambda _: self._ended(incarnation))

    def _start(self) -> Incarnation:
        self.incarnations += 1
        name = f"p{self.incarnations}"
        rng = self._random(f"start of {name}")
        scenario, calm = self.scenario, self.network.weather.calm
        process = Process(name, self._random(name), booted=rng.random() * self._loop.time())
        if rng.random() < scenario.skew:
            process.ahead_ms = rng.randrange(-_SKEW_MS, _SKEW_MS)
        if not calm and rng.random() < scenario.suspend:
            # As often as not in its start.
            steps = rng.choice((_STEPS_OF_A_START, _STEPS_OF_A_START, _STEPS))
            process.suspension = 1 + rng.randrange(steps), rng.random() * scenario.chaos_s
        if not calm:
            process.full_disks = scenario.full_disks
        effects = effects_of(process, threads=rng.random() < 0.5)
        store: ObjectStore = StoreClient(self.network, process)
        if rng.random() < 0.5:
            # As stores of the command line do.
            store = RetryingStore(store, RETRY, effects)
        version, share = self._version(), 0.0 if calm else scenario.sink_fails
        config = replace(self._shape(), allow_non_restored_state=version.dropped)
        job = version.job(lambda sink: SimulatedSink(self._output(sink), process, share))
        self.operators = ", ".join(node.id for node in job.nodes)
        origin, actors = self._origin(process), None
        if config.local_recovery is None and rng.random() < scenario.workers:
            config = replace(config, workers=rng.randrange(2, 4))
            self._note(f"{name} has {config.workers} workers")
            late = lambda: rng.random() * _WIRE_S if rng.random() < _LATE else 0.0  # noqa: E731
            runner, actors = runner_of_actors(
                job, store, config, effects, late, restore_from=origin
            )
        else:
            runner = JobRunner(job, store, config, effects, restore_from=origin)
        if config.restore.begin == "at-once":
            process.file_s = scenario.file_s
        incarnation = Incarnation(process, runner, version, actors)
        self._note(f"{name} starts")
        spared = calm or scenario.loses_objects  # nobody else has its rows then
        if actors is not None and not spared and rng.random() < _LOSES:
            after_s = rng.random() * scenario.chaos_s
            self._losing = asyncio.ensure_future(incarnation.lose_a_worker(after_s))
        incarnation.start(lambda: self._started(incarnation))
        self._alive.append(incarnation)
        return incarnation

    def _origin(self, process: Process) -> RestoreFrom | None:
        """The checkpoint that the next incarnation starts from, if one is named."""
        return None

    def _version(self) -> Version:
        """The program of the next incarnation."""
        newest = self.checker.newest
        ended = None
        if newest is not None and any(state.finished for _, state in newest.subtasks()):
            ended = self._versions[newest.author.generation]
        return self.plan.version(self.incarnations, ended, calm=self.network.weather.calm)

    def _shape(self) -> JobConfig:
        """The settings of the next incarnation."""
        settings = self._settings
        if self._machines is not None:
            settings = replace(settings, local_recovery=self._machines.local_copies)
        early = self.scenario.begins_early
        if early and self._rng.random() < early:
            settings = replace(settings, restore=replace(settings.restore, begin="at-once"))
            self._note("begins before its tables are whole")
        if not self._rescales:
            return settings
        changelog = self._rng.random() < CHANGELOG
        parallelism = self._rng.randrange(1, 5)
        self._note(f"parallelism {parallelism}, changelog {'on' if changelog else 'off'}")
        return replace(settings, parallelism=parallelism, changelog=changelog)

    def _started(self, incarnation: Incarnation) -> None:
        runner = incarnation.runner
        assert runner.incarnation is not None
        restored = runner.incarnation.plan.checkpoint
        slot = restored.slot if restored is not None else None
        self._note(f"{incarnation.process.name} is generation {runner.generation}, from {slot}")
        self.checker.barriers.watch(runner, incarnation.tasks)
        assert runner.generation is not None
        self._versions[runner.generation] = incarnation.version
        if restored is not None and incarnation.version.refusal(restored) == "certain":
            self.checker.blame(
                Property.REFUSAL,
                f"{incarnation.process.name} runs, although it does not go with slot {slot}",
            )

    def _ended(self, incarnation: Incarnation) -> bool:
        """Judge how an incarnation ended; True when the job is done."""
        if incarnation in self._alive:
            self._alive.remove(incarnation)
        name, checker, outcome = incarnation.process.name, self.checker, incarnation.outcome
        if isinstance(outcome, JobResult):
            stopped = outcome.stopped
            how = "well" if stopped is None else f"with savepoint {stopped.slot}"
            self._note(f"{name} ended {how}")
            return stopped is None
        if outcome is not None:
            self._note(f"{name} ended with {name_of(outcome)}")
            newest = checker.newest_generation, checker.newest_checkpoints()
            if incarnation.is_defect(outcome, *newest):
                checker.blame(Property.NO_DEFECT, f"{name} ended with {outcome!r}")
        return False

    def _note(self, what: str) -> None:
        self._trace.add("--", what)

    async def _take_census(self) -> None:
        """Start a job that has ended: it must leave what is retained, and nothing else."""
        # It looks for nothing new, for it would upload meanwhile what it then has no use for.
        self._settings = replace(self._settings, finish_once=True)
        # A slot that came back from the dead hides what it names from the first clean start.
        for _ in range(2 if self.checker.resurrected else 1):
            incarnation = self._start()
            await asyncio.wait([incarnation.running], timeout=_BOUND_S)
            if not self._ended(incarnation):
                self.checker.blame(Property.PROGRESS, "a job that has ended does not start again")
                return
        await self.checker.take_census(self._settings.retain)
