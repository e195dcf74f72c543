"""From sessions' files to the chapters of a report."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tidelog.bench.experiment import Experiment
from tidelog.bench.experiments import chosen, experiments
from tidelog.bench.measurement import Size
from tidelog.bench.plan import cells, measurements
from tidelog.bench.report.chapter import Chapter, Told, chapters
from tidelog.bench.request import chosen_cells
from tidelog.bench.sessions import opened
from tidelog.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that is shown."""

    told: Sequence[Told]
    chapters: Sequence[Chapter]
    unknown: Sequence[str]
    """Experiments of a session that this version of the library does not have."""

    @property
    def experiments(self) -> list[Experiment]:
        """Those that were asked for."""
        return [chapter.answer.experiment for chapter in self.chapters]


def report(paths: Sequence[Path]) -> Report:
    """Read sessions; raises ConfigError."""
    asked: dict[str, Experiment] = {}
    unknown: dict[str, None] = {}
    told = []
    for path in paths:
        first, records = opened(path)
        known: list[Experiment] = []
        for name in first.names:
            try:
                known += chosen((name,))
            except ConfigError:
                unknown[name] = None
        asked |= {experiment.name: experiment for experiment in known}
        wanted, size = chosen_cells(first.only), Size(first.size)
        planned = {each.name: cells(each, size, wanted) for each in measurements(known)}
        told.append(Told(first, records, planned))
    ordered = [experiment for experiment in experiments().values() if experiment.name in asked]
    return Report(told, chapters(told, ordered), list(unknown))
