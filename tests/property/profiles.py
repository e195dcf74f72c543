"""How long property tests look: longer in a deep run."""

from hypothesis import HealthCheck, Phase, settings

from tests.support.depth import more_in_depth


def looking(examples: int, steps: int = 50, *, deep: int = 10) -> settings:
    """Settings for a test that tries `examples` cases, `deep` times as many in a deep run.

    Without any it tries those that it names, and `deep` others in a deep run.
    """
    count = more_in_depth(examples, deep * max(1, examples))
    return settings(
        max_examples=max(1, count),
        phases=settings().phases if count else (Phase.explicit,),
        stateful_step_count=steps,
        suppress_health_check=list(HealthCheck),
    )
