"""Sources that come with the embedded runtime; all are replayable."""

from tidelog.runtime.sources.iterable import Replayable
from tidelog.runtime.sources.jsonlines import JsonLines
from tidelog.runtime.sources.push import Emitter, PushSource
from tidelog.runtime.sources.rate import Rate
from tidelog.runtime.sources.text import TextFiles

__all__ = ["Emitter", "JsonLines", "PushSource", "Rate", "Replayable", "TextFiles"]
