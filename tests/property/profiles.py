"""How long property tests look: longer in a deep run."""

from hypothesis import HealthCheck, settings

from tests.support.depth import more_in_depth


def looking(examples: int, steps: int = 50, *, deep: int = 10) -> settings:
    """Settings for a test that tries `examples` cases, `deep` times as many in a deep run."""
    return settings(
        max_examples=more_in_depth(examples, deep * examples),
        stateful_step_count=steps,
        suppress_health_check=list(HealthCheck),
    )
