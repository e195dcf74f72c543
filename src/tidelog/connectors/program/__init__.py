"""What the user's program makes and takes itself: sequences, pushed records, functions, its output.

`Stdout` and `Callback` are at least once.
"""

from tidelog.connectors.program.sinks import Callback, Stdout
from tidelog.connectors.program.sources import Emitter, PushSource, Rate, Replayable

__all__ = ["Callback", "Emitter", "PushSource", "Rate", "Replayable", "Stdout"]
