"""tidelog: durable state for stream processing.

The public API is `__all__` of this module; everything else may change between releases.
Names are loaded on first use, so that importing tidelog stays cheap.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidelog.checkpoint.coordinator import Schedule
    from tidelog.effects import Effects
    from tidelog.errors import TidelogError
    from tidelog.runtime.arguments import JobArguments
    from tidelog.runtime.config import JobConfig
    from tidelog.runtime.control.server import serve_control
    from tidelog.runtime.graph import Job, KeyedStream, Stream
    from tidelog.runtime.restore_from import RestoreFrom
    from tidelog.runtime.runner import JobResult, JobRunner
    from tidelog.runtime.sinks import Callback, Files, Postgres, Sqlite, Stdout
    from tidelog.runtime.sources import Emitter, JsonLines, PushSource, Rate, Replayable, TextFiles
    from tidelog.state.processor import (
        ExpiredTimerInfo,
        StatefulProcessor,
        StatefulProcessorHandle,
        TimerValues,
    )
    from tidelog.state.row import Row
    from tidelog.storage.open import open_store

_HOMES = {
    "Callback": "tidelog.runtime.sinks",
    "Effects": "tidelog.effects",
    "Emitter": "tidelog.runtime.sources",
    "ExpiredTimerInfo": "tidelog.state.processor",
    "Files": "tidelog.runtime.sinks",
    "Job": "tidelog.runtime.graph",
    "JobArguments": "tidelog.runtime.arguments",
    "JobConfig": "tidelog.runtime.config",
    "JobResult": "tidelog.runtime.runner",
    "JobRunner": "tidelog.runtime.runner",
    "JsonLines": "tidelog.runtime.sources",
    "KeyedStream": "tidelog.runtime.graph",
    "Postgres": "tidelog.runtime.sinks",
    "PushSource": "tidelog.runtime.sources",
    "Rate": "tidelog.runtime.sources",
    "Replayable": "tidelog.runtime.sources",
    "RestoreFrom": "tidelog.runtime.restore_from",
    "Row": "tidelog.state.row",
    "Schedule": "tidelog.checkpoint.coordinator",
    "Sqlite": "tidelog.runtime.sinks",
    "StatefulProcessor": "tidelog.state.processor",
    "StatefulProcessorHandle": "tidelog.state.processor",
    "Stdout": "tidelog.runtime.sinks",
    "Stream": "tidelog.runtime.graph",
    "TextFiles": "tidelog.runtime.sources",
    "TidelogError": "tidelog.errors",
    "TimerValues": "tidelog.state.processor",
    "open_store": "tidelog.storage.open",
    "serve_control": "tidelog.runtime.control.server",
}

__all__ = [
    "Callback",
    "Effects",
    "Emitter",
    "ExpiredTimerInfo",
    "Files",
    "Job",
    "JobArguments",
    "JobConfig",
    "JobResult",
    "JobRunner",
    "JsonLines",
    "KeyedStream",
    "Postgres",
    "PushSource",
    "Rate",
    "Replayable",
    "RestoreFrom",
    "Row",
    "Schedule",
    "Sqlite",
    "StatefulProcessor",
    "StatefulProcessorHandle",
    "Stdout",
    "Stream",
    "TextFiles",
    "TidelogError",
    "TimerValues",
    "open_store",
    "serve_control",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'tidelog' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(home), name)
    return value
