"""Where a user's code has failed, for the message of the error: file, line, code and arguments.

Invariant: nothing here raises, whatever the user's objects do.
"""

import linecache
import os
import sysconfig
from pathlib import Path
from reprlib import Repr
from traceback import walk_tb
from types import FrameType
from typing import Final

from tidelog.credentials import shows_records
from tidelog.state.schema.row import Row

_OURS: Final = str(Path(__file__).parents[1]) + os.sep
_INSTALLED: Final = (
    *{sysconfig.get_path(name) + os.sep for name in ("stdlib", "purelib", "platlib")},
    "<frozen ",
)
_MADE: Final = "<string>"
"""Where the methods are that `dataclass` makes."""
_ARGUMENT_CHARS: Final = 200
_shown = Repr()
_shown.maxstring = _shown.maxother = _ARGUMENT_CHARS
_shown.maxtuple = _shown.maxlist = _shown.maxdict = 10


def site_of(error: BaseException) -> str:
    """Where the user's code failed, and its function's arguments; empty where it is not Python."""
    frames = [
        (frame, line)
        for frame, line in walk_tb(error.__traceback__)
        if not frame.f_code.co_filename.startswith((_OURS, "<frozen "))
    ]
    if not frames:
        return ""
    frame, line = frames[0]
    arguments = _arguments(frame)
    for inner, inner_line in frames:
        if not inner.f_code.co_filename.startswith((*_INSTALLED, _MADE)):
            frame, line = inner, inner_line
    file = frame.f_code.co_filename
    code = linecache.getline(file, line).strip()
    shown = f" ({code})" if code else ""
    return f", at {_relative(file)}:{line}{shown}{arguments if shows_records() else ''}"


def _relative(file: str) -> str:
    try:
        return str(Path(file).relative_to(Path.cwd()))
    except (ValueError, OSError):
        return file


def _arguments(frame: FrameType) -> str:
    """The arguments of a call that show a value, such as `, with row=Row(n=2)`."""
    code, texts = frame.f_code, []
    for name in code.co_varnames[: code.co_argcount]:
        if name in ("self", "cls") or name not in frame.f_locals:
            continue
        value = frame.f_locals[name]
        ours = type(value).__module__.startswith("tidelog.") and not isinstance(value, Row)
        text = _repr(value)
        if not ours and not text.startswith("<"):  # an object that shows nothing
            texts.append(f"{name}={text}")
    return f", with {', '.join(texts)}" if texts else ""


def _repr(value: object) -> str:
    try:
        text = repr(value) if isinstance(value, tuple) else _shown.repr(value)
    except Exception:  # the user's own
        return "<?>"
    return text if len(text) <= _ARGUMENT_CHARS else f"{text[:_ARGUMENT_CHARS]}..."
