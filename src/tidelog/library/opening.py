"""From a URL to a database, to a view of what one held, or to the partitions of an application.

Invariant: what cannot be opened leaves nothing open.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final, overload

from tidelog.catalog.application import (
    Application,
    begin_application,
    check_partition,
    refuse_application,
)
from tidelog.changelog.upload_config import UploadConfig
from tidelog.checkpoint.schedule import Schedule
from tidelog.errors import ConfigError
from tidelog.library.database import Database
from tidelog.library.declarations import State
from tidelog.library.event_loop import EventLoop
from tidelog.library.partitions import AT_ONCE, Partitions
from tidelog.library.state_lock import StateLock
from tidelog.library.view import View, open_view
from tidelog.runtime.config import JobConfig
from tidelog.runtime.sink import Sink
from tidelog.runtime.subtasks.resources import Resources
from tidelog.storage.object_names import partition_path
from tidelog.storage.open import Connections, Url, open_store
from tidelog.storage.port import ObjectStore

_INTERVAL_S: Final = 10.0
"""Between two checkpoints of a partition unless a configuration says otherwise."""
_EXPECTED: Final = 32
"""Partitions that a process is expected to have: its memory is cut for so many."""


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
) -> Database: ...


@overload
def open(
    url: Url,
    state: Mapping[str, State] | None = None,
    *,
    at: str | int,
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
    at: str | int | None = None,
    operator: str | None = None,
    config: JobConfig | None = None,
    options: Mapping[str, Any] | None = None,
    log_url: Url | None = None,
) -> Database | View:
    """Open the state at `url`, or begin it, and go on from its last checkpoint.

    `state` declares every state by name. `name` is that of the application: another one finds no
    state of this one. `config`, `options` and `log_url` are those of jobs and stores. `sinks` are
    what the program writes to with `Database.write`, by name: any `Sink`, with its guarantee.

    Raises ConfigError, StateSchemaError for states that are not the stored ones, RestoreError and
    StorageError. Another program that has the same state open is fenced: its next checkpoint fails.

    With `at` it is a `View` of a checkpoint, to be read alone: "latest", the number of a slot, or
    the name of a savepoint. It fences nobody and needs no `state`, which is checked if it is given.
    The store may be that of any job; `operator` says which one's states, if several have some.
    Raises ConfigError and ObjectNotFoundError for what is not there, and what a restore raises.
    """
    config = config or JobConfig()
    if at is not None:
        return open_view(url, at, state, operator, config, options, log_url)
    if state is None:
        raise ConfigError(
            f"the states of {url}",
            expected="state={name: Value(...), ...}",
            found="nothing",
            action='declare them; to read what is stored, pass at="latest"',
        )
    event_loop = EventLoop()
    try:
        lock = StateLock(event_loop.lock)
        database = database_at(
            url, state, sinks, name, config, options, log_url, event_loop=event_loop, lock=lock
        )
        event_loop.ask(started(database))
    except BaseException:
        event_loop.close()
        raise
    return database


def database_at(
    url: Url,
    state: Mapping[str, State],
    sinks: Mapping[str, Sink] | None,
    name: str,
    config: JobConfig,
    options: Mapping[str, Any] | None,
    log_url: Url | None,
    *,
    event_loop: EventLoop,
    lock: StateLock,
) -> Database:
    """The database that `open` gives, not started yet; nothing is contacted."""
    store = open_store(
        url,
        event_loop.effects,
        policy=config.retry,
        options=options,
        log_url=log_url,
        encryption_key=config.encryption_key,
    )
    return Database(store, state, name, config, event_loop, event_loop.close, sinks, lock=lock)


async def started(database: Database) -> None:
    """In the event loop: restore the database; what cannot be started is closed."""
    try:
        await refuse_application(database._runner.store)
    except BaseException:
        await database._end()
        raise
    await database._start()


def open_partitions(
    url: Url,
    state: Mapping[str, State],
    *,
    partitions: int | None = None,
    name: str = "database",
    config: JobConfig | None = None,
    options: Mapping[str, Any] | None = None,
    log_url: Url | None = None,
) -> Partitions:
    """Take part in the application at `url`, or begin it; no partition is opened yet.

    `partitions` is how many there are for ever, said at the first start; without it, as many as the
    input has. The other arguments are those of `tidelog.open`, and hold for each partition; without
    a `config` a changed partition takes a checkpoint every 10 s.

    Raises ConfigError when the stored application is another one, and StorageError.
    """
    chosen = config or JobConfig(
        checkpoint=Schedule(interval=_INTERVAL_S), upload=UploadConfig(max_age=_INTERVAL_S)
    )
    if partitions is not None:
        check_partition(partitions - 1, Application(name, None))
    event_loop, connections = EventLoop(), Connections()

    def store_at(path: str | None, encryption_key: str | None) -> ObjectStore:
        return open_store(
            url,
            event_loop.effects,
            policy=chosen.retry,
            options=options,
            log_url=log_url if path is not None else None,
            encryption_key=encryption_key,
            path=path,
            connections=connections,
        )

    async def begun() -> tuple[str, Application]:
        above = store_at(None, None)
        try:
            return above.url, await begin_application(above, Application(name, partitions))
        finally:
            await above.close()

    try:
        where, application = event_loop.ask(begun())
    except BaseException:
        event_loop.close()
        raise

    def database(resources: Resources, partition: int, on_closed: Callable[[], None]) -> Database:
        return Database(
            store_at(partition_path(partition), chosen.encryption_key),
            state,
            name,
            _share_of(chosen),
            event_loop,
            on_closed,
            label=f"partition {partition} of {where}",
            resources=resources,
        )

    resources = Resources.of(chosen, event_loop.effects.clock, subtasks=_EXPECTED, tables=_EXPECTED)
    return Partitions(where, application, event_loop, connections, partial(database, resources))


def _share_of(config: JobConfig) -> JobConfig:
    """The configuration of one partition beside others."""
    return replace(
        config,
        restore=config.restore.shared_by(AT_ONCE, config.memory),
        local_recovery_bytes=config.local_recovery_bytes // _EXPECTED,
    )
