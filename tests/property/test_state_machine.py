"""Whatever happens between checkpoints, every retained checkpoint restores what it captured.

Random changes of every kind of state, flushes, checkpoints with anything between their barriers
and their end, materializations that fail or hang, lost answers, collections, crashes, restores
from any retained slot; a plain model is remembered for every checkpoint. At the end the store
holds exactly what its checkpoints and the running job refer to.
"""

import asyncio
import contextlib
import copy
import shutil
import tempfile
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, ClassVar, TypeVar

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.property.profiles import looking
from tests.support.clock import VirtualClock
from tests.support.faults import Failure, SteerableStore
from tests.support.harness import (
    TTL_MS,
    Barriered,
    Incarnation,
    checkpoint_at,
    contents,
    job_config,
    read_back,
    retained_objects,
)
from tidelog import StorageError, UploadConfig
from tidelog.checkpoint.invariants import manifest_violations
from tidelog.checkpoint.manifest import decode_entry
from tidelog.checkpoint.retention import counted
from tidelog.ids import Slot
from tidelog.state.key_groups import decode_key
from tidelog.storage import object_names
from tidelog.storage.memory import MemoryStore

T = TypeVar("T")
GIVE_UP_S = 60.0
"""Of real time; a step takes milliseconds."""

KEYS = ["a", "b", "c", "d", "e"]
key = st.sampled_from(KEYS)
entry = st.sampled_from(["x", "y", "z"])
number = st.integers(-5, 5)
time = st.integers(0, 30)


def call(name: str, **arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.tuples(st.just(name), st.fixed_dictionaries(arguments))


change = st.one_of(
    call("update_values", key=key, number=number),
    call("change_what_was_read", key=key),
    call("clear_values", key=key),
    call("change_lists", key=key, numbers=st.lists(number, max_size=3), replace=st.booleans()),
    call("clear_lists", key=key),
    call("put_entries", key=key, entry=entry, number=number),
    call("remove_entries", key=key, entry=entry),
    call("change_a_map_while_iterating", key=key, entry=entry),
    call("clear_maps", key=key),
    call("register_a_timer", key=key, time=time),
    call("delete_a_timer", key=key, time=time),
    call("fire_timers", limit=time, again=st.booleans()),
)


class Model:
    """What the states should say; values with a TTL carry their expiry time."""

    def __init__(self) -> None:
        self.plain: dict[str, dict[str, Any]] = {
            name: {} for name in ("value", "tags", "list", "map", "reducing", "sums", "timers")
        }
        self.expiring: dict[str, dict[str, Any]] = {
            name: {} for name in ("ttl-value", "ttl-list", "ttl-map")
        }

    def expected(self, of: str, now: int) -> dict[str, Any]:
        plain = {name: values[of] for name, values in self.plain.items() if of in values}
        if "sums" in plain:
            total, count = plain.pop("sums")
            plain["aggregating"] = total / count
        if "timers" in plain:
            plain["timers"] = sorted(plain["timers"])
        expiry, value = self.expiring["ttl-value"].get(of, (0, None))
        plain["ttl-value"] = value if expiry > now else None
        plain["ttl-list"] = [v for e, v in self.expiring["ttl-list"].get(of, []) if e > now]
        entries = self.expiring["ttl-map"].get(of, {})
        plain["ttl-map"] = {k: v for k, (e, v) in entries.items() if e > now}
        return {name: value for name, value in plain.items() if value not in (None, [], {})}


class StateMachine(RuleBasedStateMachine):
    table: str = "memory"
    changelog: bool = True
    tables: ClassVar[tuple[str, ...]] = ()
    """Kinds that a restore may choose from; empty: it keeps the kind and the changelog."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.directory = Path(tempfile.mkdtemp())
        self.clock = VirtualClock()
        self.rng = Random(11)
        self.memory = MemoryStore("memory://state-machine")
        self.store = SteerableStore(self.memory)
        self.model = Model()
        self.models: dict[Slot, Model] = {}
        self.barriered: tuple[Barriered, Model] | None = None
        self.materializing: asyncio.Task[None] | None = None

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Raises TimeoutError for what waits for something that never comes."""
        task = self.loop.create_task(coroutine)
        self.loop.run_until_complete(asyncio.wait([task], timeout=GIVE_UP_S))
        if not task.done():
            stack = task.get_stack()
            raise TimeoutError(f"no end within {GIVE_UP_S:.0f} s: {coroutine!r}, at {stack}")
        return task.result()

    def now(self) -> int:
        return self.clock.now_ms()

    @initialize(
        parallelism=st.integers(1, 2),
        inline=st.sampled_from([0, 500, 5000]),
        segment=st.sampled_from([300, 10_000]),
        limit=st.sampled_from([0, 1 << 20]),
    )
    def begin(self, parallelism: int, inline: int, segment: int, limit: int) -> None:
        self.config = job_config(
            self.directory,
            parallelism=parallelism,
            table=self.table,
            changelog=self.changelog,
            upload=UploadConfig(
                inline_bytes=inline, segment_bytes=segment, limit_bytes=limit, concurrency=2
            ),
        )
        self._start(None)

    def _start(self, slot: Slot | None) -> None:
        self.job = Incarnation(self.store, self.config, self.clock, self.rng, slot)
        self.run(self.job.start())

    # Changes of state.

    @rule(changes=st.lists(change, min_size=1, max_size=10))
    def change_state(self, changes: list[tuple[str, dict[str, Any]]]) -> None:
        for name, arguments in changes:
            getattr(self, name)(**arguments)

    def update_values(self, key: str, number: int) -> None:
        probe = self.job.probe_of(key)
        probe.value.update((number, key * 3))
        self.model.plain["value"][key] = (number, key * 3)
        probe.tags.update(([key] * abs(number),))
        self.model.plain["tags"][key] = ([key] * abs(number),)
        probe.ttl_value.update((number,))
        self.model.expiring["ttl-value"][key] = (self.now() + TTL_MS, (number,))
        probe.reducing.add((number,))
        before = self.model.plain["reducing"].get(key, (number,))
        self.model.plain["reducing"][key] = (max(before[0], number),)
        probe.aggregating.add(number)
        total, count = self.model.plain["sums"].get(key, (0, 0))
        self.model.plain["sums"][key] = (total + number, count + 1)

    def change_what_was_read(self, key: str) -> None:
        read = self.job.probe_of(key).tags.get()
        if read is not None:
            read[0].append("mine")

    def clear_values(self, key: str) -> None:
        probe = self.job.probe_of(key)
        for state in (probe.value, probe.tags, probe.ttl_value, probe.reducing, probe.aggregating):
            state.clear()
        for name in ("value", "tags", "reducing", "sums"):
            self.model.plain[name].pop(key, None)
        self.model.expiring["ttl-value"].pop(key, None)

    def change_lists(self, key: str, numbers: list[int], replace: bool) -> None:
        probe = self.job.probe_of(key)
        elements = [(n,) for n in numbers]
        kept = self.model.plain["list"].setdefault(key, [])
        expiring = self.model.expiring["ttl-list"].setdefault(key, [])
        if replace:
            probe.list.put(elements)
            probe.ttl_list.put(elements)
            kept.clear()
            expiring.clear()
        else:
            probe.list.appendList(elements)
            probe.ttl_list.appendList(elements)
        kept.extend(elements)
        expiring.extend((self.now() + TTL_MS, element) for element in elements)

    def clear_lists(self, key: str) -> None:
        probe = self.job.probe_of(key)
        probe.list.clear()
        probe.ttl_list.clear()
        self.model.plain["list"].pop(key, None)
        self.model.expiring["ttl-list"].pop(key, None)

    def put_entries(self, key: str, entry: str, number: int) -> None:
        probe = self.job.probe_of(key)
        probe.map.updateValue((entry,), (number,))
        probe.ttl_map.updateValue((entry,), (number,))
        self.model.plain["map"].setdefault(key, {})[(entry,)] = (number,)
        self.model.expiring["ttl-map"].setdefault(key, {})[(entry,)] = (
            self.now() + TTL_MS,
            (number,),
        )

    def remove_entries(self, key: str, entry: str) -> None:
        probe = self.job.probe_of(key)
        probe.map.removeKey((entry,))
        probe.ttl_map.removeKey((entry,))
        self.model.plain["map"].get(key, {}).pop((entry,), None)
        self.model.expiring["ttl-map"].get(key, {}).pop((entry,), None)

    def change_a_map_while_iterating(self, key: str, entry: str) -> None:
        probe = self.job.probe_of(key)
        entries = self.model.plain["map"].setdefault(key, {})
        before = dict(entries)
        seen = {}
        for user_key, value in probe.map.iterator():
            seen[user_key] = value
            probe.map.removeKey(user_key)
            probe.map.updateValue((entry,), (9,))
            entries.pop(user_key)
            entries[(entry,)] = (9,)
        assert seen == before

    def clear_maps(self, key: str) -> None:
        probe = self.job.probe_of(key)
        probe.map.clear()
        probe.ttl_map.clear()
        self.model.plain["map"].pop(key, None)
        self.model.expiring["ttl-map"].pop(key, None)

    def register_a_timer(self, key: str, time: int) -> None:
        self.job.probe_of(key).timers.register(time)
        self.model.plain["timers"].setdefault(key, set()).add(time)

    def delete_a_timer(self, key: str, time: int) -> None:
        self.job.probe_of(key).timers.delete(time)
        self.model.plain["timers"].get(key, set()).discard(time)

    def fire_timers(self, limit: int, again: bool) -> None:
        fired = []
        for probe in self.job.probes:
            last: dict[bytes, int] = {}
            for at, encoded in probe.timers.expired(limit):
                probe.backend.use_encoded_key(encoded)
                group = probe.backend.key_prefix
                assert last.get(group, at) <= at
                last[group] = at
                fired.append((str(decode_key(encoded)), at))
                if again:
                    probe.timers.register(limit + 7)
                probe.timers.delete(at)
        timers = self.model.plain["timers"]
        due = [(k, at) for k, times in timers.items() for at in times if at <= limit]
        assert sorted(fired) == sorted(due)
        for k, at in due:
            timers[k].discard(at)
            if again:
                timers[k].add(limit + 7)

    # Time, flushes, uploads.

    @rule(seconds=st.sampled_from([0.001, 0.5, 3.0]))
    def let_time_pass(self, seconds: float) -> None:
        self.run(self.clock.advance(seconds))

    @rule()
    def flush(self) -> None:
        for probe in self.job.probes:
            probe.backend.flush()

    @rule(
        prefix=st.sampled_from(
            [object_names.SEGMENTS, object_names.TABLES, object_names.MATERIALIZATIONS, None]
        )
    )
    def the_store_hangs_or_moves_again(self, prefix: str | None) -> None:
        if prefix is None:
            self._release()
        else:
            self.store.hold(prefix)

    @rule(
        where=st.sampled_from(
            [
                ("put", object_names.SEGMENTS),
                ("put", object_names.SEGMENTS),
                ("put", object_names.TABLES),
                ("put", object_names.MATERIALIZATIONS),
                ("create", object_names.CHECKPOINTS),
                ("create", object_names.CHECKPOINTS),
                ("delete", ""),
            ]
        ),
        after=st.booleans(),
        times=st.integers(1, 2),
    )
    def calls_will_fail(self, where: tuple[str, str], after: bool, times: int) -> None:
        self.store.fail(*(Failure(*where, after=after, nth=n + 1) for n in range(times)))

    def _release(self) -> None:
        self.store.release()
        self.run(self.clock.advance(0.001))

    # Checkpoints.

    @precondition(lambda self: self.barriered is None)
    @rule(loses_objects=st.sampled_from([False, False, False, True]))
    def barriers_pass(self, loses_objects: bool) -> None:
        barriered = self.run(self.job.barrier(loses_objects=loses_objects))
        self.barriered = barriered, copy.deepcopy(self.model)

    @precondition(lambda self: self.barriered is not None)
    @rule()
    def a_checkpoint_ends(self) -> None:
        barriered, model = self.barriered
        self.barriered = None
        if self.changelog:
            self._release()
        else:
            self.store.release()
        completed = self.run(self.job.finish(barriered))
        next_slot = self.job.driver.next_slot
        written = Slot(next_slot - 1) if completed else next_slot
        durable = object_names.checkpoint(written) in self.memory._objects
        if completed or (durable and written not in self.models):
            self.models[written] = model
            self.run(self._check_checkpoint(written))

    @precondition(lambda self: self.barriered is not None)
    @rule(changes=st.lists(change, max_size=5))
    def its_parts_become_durable_while_the_job_goes_on(
        self, changes: list[tuple[str, dict[str, Any]]]
    ) -> None:
        barriered, _ = self.barriered
        self._release()
        self.run(self.job.settle(barriered))
        self.change_state(changes)
        if self.changelog and self.materializing is None:
            self.materialize(0)
        self.collect()

    @precondition(lambda self: self.barriered is not None)
    @rule()
    def a_checkpoint_is_given_up(self) -> None:
        barriered, _ = self.barriered
        self.barriered = None
        self.run(self.job.drop(barriered))

    @precondition(lambda self: self.barriered is None)
    @rule(changes=st.lists(change, max_size=10), flushes=st.booleans(), fails=st.booleans())
    def a_checkpoint(
        self, changes: list[tuple[str, dict[str, Any]]], flushes: bool, fails: bool
    ) -> None:
        self.change_state(changes)
        self.barriers_pass(loses_objects=False)
        self.change_state(changes)
        if flushes:  # what follows the barrier travels in the same segment
            self.flush()
        if fails:
            self.store.fail(Failure("put", object_names.SEGMENTS))
        self.a_checkpoint_ends()

    @precondition(lambda self: self.changelog and self.materializing is None)
    @rule(subtask=st.integers(0, 3))
    def materialize(self, subtask: int) -> None:
        subtask %= len(self.job.probes)
        self.job.driver.start.cadence.expect(None)
        self.materializing = self.loop.create_task(self._materialize(subtask))
        self.run(self.clock.advance(0.001))

    async def _materialize(self, subtask: int) -> None:
        with contextlib.suppress(StorageError):
            await self.job.materialize(subtask)
        self.materializing = None

    @rule()
    def collect(self) -> None:
        self.run(self.job.started.collector.collect(self.job.live))

    # Crashes.

    @rule(data=st.data())
    def crash_and_restore(self, data: st.DataObject) -> None:
        self.run(self._crash())
        slots = self._retained()
        wanted = data.draw(st.sampled_from([None, *slots])) if slots else None
        self._start(wanted)
        resumed = self.job.started.plan.checkpoint
        assert (resumed is None) == (not slots)
        self.model = copy.deepcopy(self.models[resumed.slot]) if resumed else Model()
        self._check_running()

    @rule(data=st.data(), parallelism=st.integers(1, 4))
    def crash_and_restore_in_another_shape(self, data: st.DataObject, parallelism: int) -> None:
        self.config = replace(self.config, parallelism=parallelism)
        if self.tables:
            self.table = data.draw(st.sampled_from(self.tables))
            self.changelog = data.draw(st.booleans())
            self.config = replace(self.config, table=self.table, changelog=self.changelog)
        self.crash_and_restore(data)

    async def _crash(self) -> None:
        if self.materializing is not None:
            self.materializing.cancel()
            await asyncio.gather(self.materializing, return_exceptions=True)
            self.materializing = None
        self.barriered = None
        await self.job.crash()
        self.store.release()
        self.store.fail()

    def _retained(self) -> list[Slot]:
        found = map(object_names.slot_of, self.memory._objects)
        slots = sorted(slot for slot in found if slot is not None)
        if not slots:
            return []
        # What is about to be deleted counts no more.
        name = object_names.checkpoint(slots[-1])
        newest = decode_entry(self.memory._objects[name], name)
        return [slot for slot in counted(slots, newest) if slot in self.models]

    # What must hold.

    @rule()
    def running_states_equal_the_model(self) -> None:
        self._check_running()

    def _check_running(self) -> None:
        for k in KEYS:
            found = contents(self.job.probe_of(k), k)
            assert found == self.model.expected(k, self.now())

    @rule()
    def every_retained_checkpoint_restores(self) -> None:
        failures, self.store.faults = self.store.faults, ()
        for slot in self._retained():
            self.run(self._check_checkpoint(slot))
        self.store.faults = failures

    async def _check_checkpoint(self, slot: Slot) -> None:
        checkpoint = await checkpoint_at(self.memory, slot, self.job.runner.effects)
        assert manifest_violations(checkpoint) == []
        directory = self.directory / "read-back"
        found = await read_back(self.memory, self.config, checkpoint, self.clock, directory, KEYS)
        assert found == {k: self.models[slot].expected(k, self.now()) for k in KEYS}

    def teardown(self) -> None:
        try:
            if hasattr(self, "job"):
                self._end()
        finally:
            self.run(self._crash() if hasattr(self, "job") else asyncio.sleep(0))
            self.loop.close()
            shutil.rmtree(self.directory, ignore_errors=True)

    def _end(self) -> None:
        """Nothing fails any more: one more checkpoint, one collection, and the census is exact."""
        self.store.fail()
        self._release()
        if self.barriered is not None:
            self.a_checkpoint_is_given_up()
        self.run(self.clock.advance(10.0))
        self.barriers_pass(loses_objects=False)
        self.a_checkpoint_ends()
        self.run(self.job.started.collector.collect(self.job.live))
        self.every_retained_checkpoint_restores()
        names, needed = self.run(retained_objects(self.memory, self.job.runner.effects))
        stored = set(self.memory._objects)
        live = self.job.started.start.ledger.closure(self.run(self.job.live()))
        assert needed <= stored, "an object of a retained checkpoint is missing"
        assert stored == names | needed | live, "an object was leaked"
        self._check_retained()

    def _check_retained(self) -> None:
        assert len(self._retained()) == min(len(self.models), self.config.retain)


def machine(machine: type[StateMachine], usual: int, deep: int, **settings: Any) -> Any:
    """The test case of a state machine, with other values of its class attributes."""
    case = type(machine.__name__, (machine,), settings).TestCase
    case.settings = looking(usual, deep=deep)
    return case


TestMemory = machine(StateMachine, 12, 42)
TestRocks = machine(StateMachine, 2, 38, table="rocksdb")
TestMemoryWithoutChangelog = machine(StateMachine, 6, 34, changelog=False)
TestRocksWithoutChangelog = machine(StateMachine, 2, 25, table="rocksdb", changelog=False)
TestSwitching = machine(StateMachine, 8, 38, tables=("memory",))
TestSwitchingTables = machine(StateMachine, 3, 17, tables=("memory", "rocksdb"))
