"""What the user's program makes and takes itself: sequences, pushed records, functions, its output.

`Stdout` and `Callback` are at least once.
"""

from tidelog.connectors.program.callback import Callback
from tidelog.connectors.program.push import Emitter, PushSource
from tidelog.connectors.program.rate import Rate
from tidelog.connectors.program.replayable import Replayable
from tidelog.connectors.program.stdout import Stdout

__all__ = ["Callback", "Emitter", "PushSource", "Rate", "Replayable", "Stdout"]
