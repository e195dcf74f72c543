"""What the user's program makes and takes itself: sequences, pushed records, functions, its output.

`StdoutSink` and `ForeachSink` are at least once.
"""

from tidelog.connectors.program.sinks import ForeachSink, StdoutSink
from tidelog.connectors.program.sources import Emitter, IterableSource, PushSource, RateSource

__all__ = ["Emitter", "ForeachSink", "IterableSource", "PushSource", "RateSource", "StdoutSink"]
