"""Settings of several cells: what they share, and what tells one from the others."""

from collections.abc import Mapping, Sequence

from tidelog.bench.measurement import Setting


def common(cells: Sequence[Mapping[str, Setting]]) -> dict[str, Setting]:
    """The settings that all cells share; of a single cell all."""
    if not cells:
        return {}
    first, rest = cells[0], cells[1:]
    return {
        name: value
        for name, value in first.items()
        if all(name in other and other[name] == value for other in rest)
    }


def own(settings: Mapping[str, Setting], shared: Mapping[str, Setting]) -> dict[str, Setting]:
    """The settings of a cell that not all cells share."""
    return {name: value for name, value in settings.items() if name not in shared}
