"""Child processes: each measured run gets a fresh one, so neither heap nor caches carry over.

Invariant: children run one at a time.
"""

import multiprocessing
import traceback
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any, TypeVar, cast

T = TypeVar("T")


def in_child(function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Call an importable function in a fresh process; its errors are raised here."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as pool:
        return cast(T, pool.submit(_readable, function, *args, **kwargs).result())


def _readable(function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Errors cross the border between processes as text: not every class can be rebuilt there."""
    try:
        return function(*args, **kwargs)
    except Exception:
        raise RuntimeError(traceback.format_exc()) from None
