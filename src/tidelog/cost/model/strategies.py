"""All strategies side by side.

Invariant: every strategy is estimated for the same workload and the same settings.
"""

from collections.abc import Iterable

from tidelog.cost.model.changelog import estimate_changelog
from tidelog.cost.model.estimate import Estimate, Strategy
from tidelog.cost.model.incremental import estimate_incremental
from tidelog.cost.model.settings import Settings
from tidelog.cost.model.spark import SparkOptions, estimate_spark
from tidelog.cost.model.workload import Workload


def estimate_all(
    strategies: Iterable[Strategy], workload: Workload, settings: Settings, spark: SparkOptions
) -> list[Estimate]:
    """An estimate per strategy, in their order."""
    found = []
    for strategy in strategies:
        if strategy is Strategy.CHANGELOG:
            found.append(estimate_changelog(workload, settings))
        elif strategy is Strategy.INCREMENTAL:
            found.append(estimate_incremental(workload, settings))
        else:
            found.append(estimate_spark(strategy, workload, settings, spark))
    return found
