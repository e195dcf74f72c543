"""A trial of an experiment, in directories below one of the test's."""

from collections.abc import Mapping
from pathlib import Path

from tidelog_bench.experiment import Setting, Trial


def trial_in(room: Path, settings: Mapping[str, Setting], variant: str, seed: int = 7) -> Trial:
    """A trial in an empty directory; with equal rooms its `kept` is the same for several."""
    directory = room / f"trial-{len(list(room.glob('trial-*')))}"
    directory.mkdir(parents=True)
    (room / "kept").mkdir(exist_ok=True)
    return Trial(settings, variant, seed, directory, room / "kept")
