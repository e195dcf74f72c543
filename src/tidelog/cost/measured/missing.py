"""Why a comparison is missing, and what to do about it.

Invariant: a reason says what was expected, what was found, and the option of `tidelog run` that
helps.
"""

from math import ceil
from typing import Final

from tidelog.cost.model.settings import Settings

WANTED_INTERVALS: Final = 3
"""Intervals that the retained checkpoints should span: one or two are complete then."""


def no_change() -> str:
    """A subtask that did nothing."""
    return "nothing was changed while these checkpoints were written"


def no_log() -> str:
    """Changes, but none in a log."""
    return (
        "these checkpoints name no log: every one of them is a table of its own, as with "
        "`--no-changelog`"
    )


def no_time() -> str:
    """Checkpoints that are not two in a row, or that carry the same time."""
    return (
        "expected two checkpoints in a row, written at different times; found none. "
        "Next: keep more of them with `tidelog run ... --retain N`, and try again"
    )


def too_few(materializations: int, seconds: float, checkpoint_s: float) -> str:
    """Fewer than two materializations within the retained checkpoints of a run."""
    default_s = Settings().materialize.interval
    return (
        "expected two materializations or more within the retained checkpoints; found "
        f"{materializations} in {seconds:.1f} s. Next: let them span {WANTED_INTERVALS} "
        "materialization intervals: `tidelog run ... --retain N` with a larger N, "
        f"{ceil(WANTED_INTERVALS * default_s / checkpoint_s)} for the interval of {default_s:g} s "
        f"that is the default and a checkpoint every {checkpoint_s:.1f} s as here"
    )


def not_counted() -> str:
    """The manifests are of a release that did not count updates."""
    return (
        "these checkpoints do not count the updates that their changes combine: an older release "
        "wrote them. Next: pass the output of `tidelog run --json` with --status FILE"
    )
