"""A world in which the input grows after each end of the job, and the operator starts it again.

Invariant: after each night the outputs hold what they must, and nothing else.
"""

from collections import Counter

from tests.simulator.checks.violation import Property
from tests.simulator.jobs.nightly import NightlyPlan
from tests.simulator.run.world import World


class NightlyWorld(World):
    async def _live_once(self) -> bool:
        """As before; the job is done when it has ended in the last night."""
        if not await super()._live_once():
            return False
        plan = self.plan
        assert isinstance(plan, NightlyPlan)
        for sink, expected in plan.expected_by_night[plan.nights.now].items():
            committed = self.checker.committed.get(sink, Counter())
            if committed != expected:
                missing, excess = expected - committed, committed - expected
                self.checker.blame(
                    Property.EXACTLY_ONCE,
                    f"{sink} after night {plan.nights.now}: missing {missing}, too many {excess}",
                )
        if plan.nights.now + 1 == plan.nights.count:
            return True
        plan.nights.now += 1
        self._note(f"night {plan.nights.now} begins")
        return False
