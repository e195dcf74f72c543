"""How long property tests look: `TIDELOG_HYPOTHESIS=ci` looks longer."""

import os

from hypothesis import HealthCheck, settings

_DEEP = os.environ.get("TIDELOG_HYPOTHESIS") == "ci"


def looking(examples: int, steps: int = 50) -> settings:
    """Settings for a test that tries `examples` cases, ten times as many in the `ci` profile."""
    return settings(
        max_examples=examples * 10 if _DEEP else examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
