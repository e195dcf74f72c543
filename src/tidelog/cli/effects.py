"""The outside world of a command, whose end waits for nothing that nobody needs."""

from collections.abc import Iterator
from contextlib import contextmanager

from tidelog.effects import Effects


@contextmanager
def command_effects() -> Iterator[Effects]:
    """Clock, chance and threads: at the end of the block nobody waits for what threads still do."""
    effects = Effects(frees_memory=False)
    try:
        yield effects
    finally:
        effects.offload.close(wait=False)
