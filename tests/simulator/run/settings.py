"""Random settings of simulated jobs: small limits, so that every threshold is crossed.

Invariant: no setting makes a run fail by itself: failures are tolerated, timeouts are longer than
any single misfortune.
"""

from pathlib import Path
from random import Random
from typing import Final

from tests.simulator.jobs.job_plan import JobPlan
from tests.simulator.run.scenario import Scenario
from tidelog.changelog.upload_config import UploadConfig
from tidelog.checkpoint.schedule import Schedule
from tidelog.materialize.config import MaterializeConfig
from tidelog.runtime.config import JobConfig, UnalignedConfig
from tidelog.state.config import FlushConfig, RestoreConfig
from tidelog.storage.retry_policy import RetryPolicy

RETRY: Final = RetryPolicy(
    attempt_timeout=1.0,
    hedge_after=0.25,
    first_backoff=0.02,
    max_backoff=0.4,
    deadline=3.0,
)
_NEVER: Final = 10**9


def make_settings(rng: Random, scenario: Scenario, plan: JobPlan, work_dir: Path) -> JobConfig:
    """A random configuration."""
    return JobConfig(
        parallelism=plan.parallelism,
        mode=plan.mode,
        key_groups=rng.choice((4, 7, 16)),
        changelog=rng.random() < scenario.changelog,
        table="rocksdb" if scenario.rocksdb else "memory",
        work_dir=work_dir,
        channel_buffers=rng.choice((1, 2, 5)),
        retain=rng.choice((1, 2, 3)),
        checkpoint=Schedule(
            interval=rng.choice((0.2, 0.5, 1.0)),
            timeout=rng.choice(scenario.timeouts),
            min_pause=rng.choice((0.0, 0.1)),
            tolerable_failures=_NEVER,
        ),
        upload=UploadConfig(
            segment_bytes=rng.choice((300, 2000, 100_000)),
            max_age=rng.choice((0.05, 0.25, 1.0)),
            linger=rng.choice((0.0, 0.01)),
            inline_bytes=rng.choice((0, 300, 20_000)),
            # Copies of segments on their way count too: less would let one row through at a time.
            limit_bytes=rng.choice((1000, 5000, 1_000_000)),
            concurrency=rng.choice((1, 2, 4)),
        ),
        materialize=MaterializeConfig(
            interval=rng.choice((0.7, 2.0, 5.0)),
            log_factor=rng.choice((1.0, 4.0)),
            min_log_bytes=rng.choice((500, 100_000)),
            tolerable_failures=_NEVER,
            retry_pause=0.1,
        ),
        unaligned=UnalignedConfig(
            mode=rng.choice(("off", "timeout", "always")),
            timeout=rng.choice((0.01, 0.2, 2.0)),
            overdraft=rng.choice((0, 1, 5)),
        ),
        flush=FlushConfig(
            rows=rng.choice((3, 20, 1000)),
            max_age=rng.choice((0.05, 0.3, 1.0)),
            cache_bytes=rng.choice((0, 500, None)),
        ),
        restore=RestoreConfig(
            concurrency=rng.choice((1, 8)),
            read_ahead_bytes=rng.choice((200, 1 << 20)),
            replay_bytes=rng.choice((200, 1 << 20)),
        ),
    )
