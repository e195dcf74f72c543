"""A database: durable state by key for a program that has a loop of its own.

Invariants: a program that goes on from its `position` loses and doubles nothing; what cannot be
opened leaves nothing open.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, overload

from tidelog.catalog.locate import parse_checkpoint
from tidelog.checkpoint.manifest import Checkpoint, Savepoint
from tidelog.effects import Effects
from tidelog.errors import ConfigError, require
from tidelog.library.event_loop import EventLoop
from tidelog.library.scan import BEGINNING, Scan
from tidelog.library.state_job import StateJob
from tidelog.library.states import State, check_states
from tidelog.library.step import Step
from tidelog.library.steps import Steps
from tidelog.library.view import View, ViewOpening
from tidelog.runtime.config import JobConfig
from tidelog.runtime.sink import Sink
from tidelog.storage.open import Url, open_store
from tidelog.storage.port import ObjectStore


@overload
def open(  # as in sqlite3 and shelve: `tidelog.open`
    url: Url,
    state: Mapping[str, State],
    *,
    sinks: Mapping[str, Sink] | None = None,
    name: str = "database",
    config: JobConfig | None = None,
    options: Mapping[str, Any] | None = None,
    log_url: Url | None = None,
) -> "Database": ...


@overload
def open(
    url: Url,
    state: Mapping[str, State] | None = None,
    *,
    checkpoint: str | int,
    operator: str | None = None,
    config: JobConfig | None = None,
    options: Mapping[str, Any] | None = None,
    log_url: Url | None = None,
) -> View: ...


def open(
    url: Url,
    state: Mapping[str, State] | None = None,
    *,
    sinks: Mapping[str, Sink] | None = None,
    name: str = "database",
    checkpoint: str | int | None = None,
    operator: str | None = None,
    config: JobConfig | None = None,
    options: Mapping[str, Any] | None = None,
    log_url: Url | None = None,
) -> "Database | View":
    """Open the state at `url`, or begin it, and go on from its last checkpoint.

    `state` declares every state by name. `name` is that of the application: the state of one is
    refused to another. `config`, `options` and `log_url` are those of jobs and stores. `sinks` are
    what the program writes to with `Database.write`, by name: any `Sink`, with its guarantee.

    Raises ConfigError, StateSchemaError for states that are not the stored ones, RestoreError and
    StorageError. Another program that has the same state open is fenced: its next checkpoint fails.

    With `checkpoint` it is a `View` of one, to be read alone: "latest", its number, or
    the name of a savepoint. It fences nobody and needs no `state`, which is checked if it is given.
    The store may be that of any job; `operator` says which one's states, if several have some.
    Raises ConfigError and ObjectNotFoundError for what is not there, and what a restore raises.
    """
    config = config or JobConfig()
    if checkpoint is None and state is None:
        raise ConfigError(
            f"the states of {url}",
            expected="state={name: ValueState(...), ...}",
            found="nothing",
            action='declare them; to read what is stored, pass checkpoint="latest"',
        )
    checkpoint_name = None if checkpoint is None else parse_checkpoint(str(checkpoint))
    event_loop, started = EventLoop(), False
    try:
        check_states(state or {})
        store = configured_store(url, event_loop.effects, config, options, log_url)
        if state is None or checkpoint is not None:
            return event_loop.ask(
                ViewOpening(store, event_loop.effects, config, operator, state).run(checkpoint_name)
            )
        job = StateJob(store, state, name, config, event_loop, Steps, sinks=sinks)
        event_loop.ask(job.start())
        started = True
        return Database(job, event_loop.close)
    finally:
        if not started:
            event_loop.close()


def configured_store(
    url: Url,
    effects: Effects,
    config: JobConfig,
    options: Mapping[str, Any] | None,
    log_url: Url | None,
) -> ObjectStore:
    """The store at `url`, as a configuration says; nothing is contacted."""
    require("config=", repr(config), isinstance(config, JobConfig), "a JobConfig")
    return open_store(
        url,
        effects=effects,
        policy=config.retry,
        storage=config.storage,
        options=options,
        log_url=log_url,
        encryption_key=config.encryption_key,
    )


class KeyedDatabase:
    """What threads and tasks do with a database alike, by ordinary calls."""

    def __init__(self, job: StateJob) -> None:
        self._job, self._program = job, job.program
        # Not methods of its own: each call in Python takes a tenth of a step's time.
        self.key, self.advance = job.program.key, job.program.advance

    @property
    def position(self) -> dict[Any, Any] | None:
        """The position of each partition in the last durable checkpoint; None when it has none.

        After the start it says where to go on; later it is what may be reported to others as done.
        """
        return self._program.position

    def write(self, sink: str, record: Any) -> None:
        """Write a record to one of the `sinks`, as a part of the step.

        Do not change the record any more. It is visible, and visible once, when a checkpoint with
        the step is durable; waits while the sink has no room. What a sink says of a record that it
        cannot write ends the database. Raises ConfigError for a sink there is none of.
        """
        self._program.write(sink, record)

    def apply(
        self,
        name: str,
        values: Iterable[tuple[Any, Any]],
        *,
        partition: Any = None,
        position: Any = None,
    ) -> None:
        """Set the values of many keys of a `ValueState`: `(key, value)` each; all of them, or none.

        It costs less than one by one. With a `position` it is followed by `advance`.
        """
        self._program.apply(name, values, partition, position)

    def step(self) -> Step:
        """The changes in the block are in one checkpoint, all of them, with its positions.

        `async with` for tasks, where it begins when no checkpoint is about to capture what is
        there, and when memory and sinks have room. A block within another one of the same thread or
        task is a part of that step; `advance` ends none. It is left by who has entered it. Wait for
        nothing long in it: a checkpoint waits for its end. A block that breaks off after it has
        changed something, also by being cancelled, ends the database, for nobody can take back its
        changes: open it again, and it goes on from its last checkpoint.
        """
        return Step(self._job)


class Database(KeyedDatabase):
    """Durable state by key; operations may come from any thread.

    All operations raise the error that ended the database, if one has.
    """

    def __init__(self, job: StateJob, on_close: Callable[[], None]) -> None:
        super().__init__(job)
        self._ask, self._on_close = job.event_loop.ask, on_close
        self._close_lock = threading.RLock()
        """One thread takes the last checkpoint. Reentrant, as its signal handler may close, too."""

    @property
    def ended(self) -> bool:
        """Whether the database is closed or was ended by an error, which operations then raise."""
        return self._job.ended

    def scan(
        self, name: str, *, prefix: Any = None, after: Any = BEGINNING
    ) -> Iterator[tuple[Any, ...]]:
        """The keys of a state with their values: (key, value), (key, elements) of a
        ListState, and for a MapState (key, key of the entry, value) of every entry.

        In the order in which keys are stored: numbers from 0 up, after them the negative ones;
        texts and bytes by length, those of one length by their bytes; tuples by length, then part
        by part. `prefix` takes only keys that begin with this text, bytes or tuple, `after` only
        those that come after this key, `...` for the key None. What was set before the scan is in
        it; what is set or deleted meanwhile may be. No key comes twice. Memory is bounded, and
        others go on all the time. Raises ConfigError for `after=None`, which is the beginning as
        well, where there is a key None.
        """
        self._job.check()
        scan = Scan([self._program.scan_part(name)], prefix, after)
        if not scan.ordered:
            self._ask(self._job.flush())
        return scan.rows()

    def checkpoint(self) -> Checkpoint:
        """Wait until all that was changed is durable, and end the step of the calling thread.

        Raises CheckpointFailedError, ConfigError within a block of a step, and what has ended the
        database.
        """
        self._job.end_step()
        return self._ask(self._job.checkpoint())

    def savepoint(self, name: str | None = None) -> Savepoint:
        """Wait for a checkpoint that is kept until somebody drops it, and end the calling thread's
        step; raises SavepointFailedError, and ConfigError within a block of a step.
        """
        self._job.end_step()
        return self._ask(self._job.savepoint(name))

    def close(self) -> None:
        """Take a last checkpoint, and release everything. A step that is open is part of it."""
        if self._job.closed:
            return
        self._job.check_between_blocks("close")
        self._job.program.steps.end_step()  # for which the checkpoint of another thread may wait
        with self._close_lock:
            if self._job.closed:
                return
            try:
                self.checkpoint()
            finally:
                self._end()

    def _end(self) -> None:
        if self._job.closed:
            return
        try:
            self._ask(self._job.end())
        finally:
            self._on_close()

    def __enter__(self) -> "Database":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:  # what broke the loop broke a step: the next start goes on from the last one
            self._end()
