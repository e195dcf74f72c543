"""Arguments of sources and sinks.

Invariant: one of another type than the constructor declares is a ConfigError that names it, before
anything is read or written.
"""

import os
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import wraps
from numbers import Integral, Real
from pathlib import Path
from types import UnionType
from typing import Any, Final, Literal, ParamSpec, Union, get_args, get_origin

from tidelog.errors import ConfigError, require

P = ParamSpec("P")

_ALSO: Final[dict[Any, Any]] = {int: Integral, float: Real, Path: os.PathLike}
"""What does as well as a type, such as a number of numpy."""

_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def local_path(what: str, path: Path | str, option: str | None = None) -> Path:
    """The absolute path of what a connector reads or writes on this machine; `option` is the one of
    `tidelog run` that usually gives it.

    Raises ConfigError for an empty one, which would be where the program runs, and for a URL, which
    would be a directory of that name there.
    """
    is_local = path not in (None, "") and not (isinstance(path, str) and _URL.match(path))
    usual = f", as `{option} PATH` gives" if option else ""
    require(what, repr(path), is_local, f"a path on this machine, no URL{usual}")
    return Path(path).absolute()


def typed(init: Callable[P, None]) -> Callable[P, None]:
    """A constructor that also refuses arguments of other types than it declares."""

    @wraps(init)
    def checked(*args: P.args, **kwargs: P.kwargs) -> None:
        names = init.__code__.co_varnames
        arguments = dict(zip(names, args, strict=False)) | kwargs
        try:
            init(*args, **kwargs)
        except (TypeError, ValueError, AttributeError):
            _check(init, arguments)
            raise
        # Afterwards: what the constructor says itself is more to the point.
        _check(init, arguments)

    return checked


def _check(init: Callable[..., None], arguments: dict[str, Any]) -> None:
    for name, kind in init.__annotations__.items():
        if name in arguments and not _fits(arguments[name], kind):
            raise ConfigError(
                f"{name}= of {type(arguments['self']).__name__}",
                expected=_shown(kind),
                found=f"{arguments[name]!r:.100}",
                action="correct it",
            )


def _fits(value: object, kind: Any) -> bool:
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        return any(_fits(value, member) for member in get_args(kind))
    if origin is Literal:
        return value in get_args(kind)
    if origin is Sequence and get_args(kind) == (str,):
        if not isinstance(value, Iterable) or isinstance(value, str | bytes):
            return False
        return not isinstance(value, Collection) or all(isinstance(item, str) for item in value)
    kind = _ALSO.get(kind, origin or kind)
    # Whatever is true or false does for a bool; a protocol says nothing about its objects.
    unchecked = kind in (Any, bool) or getattr(kind, "_is_protocol", False)
    return unchecked or not isinstance(kind, type) or isinstance(value, kind)


def _shown(kind: Any) -> str:
    text = kind.__name__ if isinstance(kind, type) else str(kind)
    return re.sub(r"[a-z_.]+[.](?=[A-Z])", "", text)
