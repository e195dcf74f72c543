"""The one ratio that says most of an experiment: its first ratio of its first figure."""

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tidelog.bench.experiment import Figure
from tidelog.bench.report.answer import Answer
from tidelog.bench.report.verdict import Verdict, verdict

_ORDER: Final = tuple(Verdict)


@dataclass(frozen=True, slots=True)
class Headline:
    """A ratio over all cells of an experiment."""

    figure: Figure
    ratio: str
    median: float
    """Of the cells' medians."""
    low: float
    """Over all pairs of all cells."""
    high: float
    verdicts: Sequence[Verdict]
    """One per cell."""

    @property
    def says(self) -> str:
        """What the cells say together."""
        counted = Counter(self.verdicts)
        if len(counted) == 1:
            only = self.verdicts[0]
            return f"{only} in all {len(self.verdicts)} cells" if len(self.verdicts) > 1 else only
        return ", ".join(f"{counted[kind]} {kind}" for kind in _ORDER if counted[kind])

    @property
    def verdict(self) -> Verdict | None:
        """What all cells say; None where they disagree."""
        return self.verdicts[0] if len(set(self.verdicts)) == 1 else None


def headline(answer: Answer) -> Headline | None:
    """None where nothing can be divided."""
    for figure in answer.present(answer.experiment.figures):
        for ratio in answer.experiment.ratios:
            found = [
                cell.ratios[ratio.name][figure.name]
                for cell in answer.cells
                if figure.name in cell.ratios.get(ratio.name, {})
            ]
            if found:
                return Headline(
                    figure,
                    ratio.name,
                    statistics.median(each["median"] for each in found),
                    min(each["min"] for each in found),
                    max(each["max"] for each in found),
                    [verdict(each, figure) for each in found],
                )
    return None
