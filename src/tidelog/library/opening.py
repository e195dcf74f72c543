"""From a URL to a database, or to a view of what one held.

Invariant: what cannot be opened leaves nothing open.
"""

from collections.abc import Mapping
from typing import Any, overload

from tidelog.catalog.locate import parse_place
from tidelog.effects import Effects
from tidelog.errors import ConfigError, require
from tidelog.library.database import Database
from tidelog.library.event_loop import EventLoop
from tidelog.library.state_job import StateJob
from tidelog.library.state_lock import StateLock
from tidelog.library.states import State, check_states
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

    `state` declares every state by name. `name` is that of the application: the state of one is
    refused to another. `config`, `options` and `log_url` are those of jobs and stores. `sinks` are
    what the program writes to with `Database.write`, by name: any `Sink`, with its guarantee.

    Raises ConfigError, StateSchemaError for states that are not the stored ones, RestoreError and
    StorageError. Another program that has the same state open is fenced: its next checkpoint fails.

    With `at` it is a `View` of a checkpoint, to be read alone: "latest", the number of a slot, or
    the name of a savepoint. It fences nobody and needs no `state`, which is checked if it is given.
    The store may be that of any job; `operator` says which one's states, if several have some.
    Raises ConfigError and ObjectNotFoundError for what is not there, and what a restore raises.
    """
    config = config or JobConfig()
    if at is None and state is None:
        raise ConfigError(
            f"the states of {url}",
            expected="state={name: Value(...), ...}",
            found="nothing",
            action='declare them; to read what is stored, pass at="latest"',
        )
    place = None if at is None else parse_place(str(at))
    event_loop, started = EventLoop(), False
    try:
        check_states(state or {})
        store = store_at(url, event_loop.effects, config, options, log_url)
        if state is None or at is not None:
            return event_loop.ask(
                ViewOpening(store, event_loop.effects, config, operator, state).run(place)
            )
        job = StateJob(store, state, name, config, event_loop, StateLock, sinks=sinks)
        event_loop.ask(job.start())
        started = True
        return Database(job, event_loop.close)
    finally:
        if not started:
            event_loop.close()


def store_at(
    url: Url,
    effects: Effects,
    config: JobConfig,
    options: Mapping[str, Any] | None,
    log_url: Url | None,
) -> ObjectStore:
    """The store that a configuration is for; nothing is contacted."""
    require("config=", repr(config), isinstance(config, JobConfig), "a JobConfig")
    return open_store(
        url,
        effects,
        policy=config.retry,
        options=options,
        log_url=log_url,
        encryption_key=config.encryption_key,
    )
