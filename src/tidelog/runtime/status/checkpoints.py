"""Checkpoints of a running job, and the restore it began with."""

from dataclasses import dataclass

from tidelog.checkpoint.sizes import CheckpointContents, CheckpointSizes
from tidelog.ids import Slot
from tidelog.metrics import counter, flag, gauge
from tidelog.runtime.checkpoints.completed import CheckpointPhases


@dataclass(frozen=True, slots=True)
class CheckpointsStatus:
    """The checkpoints of this start."""

    completed: int = counter(
        "checkpoints_completed",
        "Checkpoints and savepoints completed.",
        watch="No growth over several intervals: a failure now would repeat all since the last.",
    )
    failed: int = counter(
        "checkpoints_failed",
        "Checkpoints and savepoints given up: a store that refused, a timeout, a task that ended.",
        watch="Any growth; the log has the reason as `checkpoint_aborted`.",
    )
    last_duration_s: float | None = gauge(
        "checkpoint_last_seconds",
        "Duration of the last completed checkpoint, from its trigger to its manifest.",
        watch="A jump with `checkpoint_alignment_seconds` is back-pressure, otherwise the store.",
        default=None,
    )
    p50_s: float | None = gauge(
        "checkpoint_p50_seconds",
        "Median duration of the last 4096 checkpoints.",
        watch="What a checkpoint usually takes.",
        default=None,
    )
    p99_s: float | None = gauge(
        "checkpoint_p99_seconds",
        "99th percentile of the durations of the last 4096 checkpoints.",
        watch="Near the interval checkpoints follow each other without a pause, and output is "
        "committed late.",
        default=None,
    )
    manifest_bytes: int = gauge(
        "checkpoint_manifest_bytes",
        "Size of the last checkpoint's manifest.",
        watch="Grows with subtasks and with the small tails of the log that it holds.",
    )
    last_failure: str | None = None
    kept_aligned: str | None = flag(
        "checkpoints_kept_aligned",
        "1 when barriers stay aligned because records in flight cannot be stored, although the "
        "configuration lets them overtake.",
        watch="1 says that unaligned checkpoints do not work in this job; the log says why.",
        holds=lambda reason: reason is not None,
    )
    """Why barriers wait for records that they were to overtake."""
    last_checkpoint: Slot | None = gauge(
        "last_checkpoint",
        "Number of the newest checkpoint, from which a restart resumes.",
        watch="Which number to name in `tidelog checkpoints show` or `--restore-checkpoint`.",
        default=None,
    )
    sizes: CheckpointSizes | None = None
    """Sizes of the last completed checkpoint."""
    aligned_edges: tuple[str, ...] = ()
    """Edges on which barriers never overtake, though they do on others."""
    dropped_buffers: int = counter(
        "in_flight_dropped_buffers",
        "Buffers of records in flight that the restore dropped, as the configuration says.",
        watch="Above 0 records were lost on purpose.",
    )
    interval_s: float | None = gauge(
        "checkpoint_interval_seconds",
        "Configured time between the starts of two checkpoints.",
        watch="What `checkpoint_age_seconds` is compared with.",
        default=None,
    )
    age_s: float | None = gauge(
        "checkpoint_age_seconds",
        "Time since the last checkpoint completed, or since one was left out because nothing had "
        "changed, or since the job began to run.",
        watch="Several intervals: a restart now would repeat that much of the input.",
        default=None,
        ages="always",
    )
    objects_lost: int = counter(
        "objects_lost",
        "Objects that checkpoints refer to and that were found missing in the store.",
        watch="Any growth: something else deletes objects under this URL. Take a canonical "
        "savepoint before you stop the job.",
    )
    objects_uploaded_again: int = counter(
        "objects_uploaded_again",
        "Objects that were missing in the store and were uploaded again from the local disk.",
        watch="As many as `objects_lost`: all checkpoints can be restored again.",
    )
    objects_missing: int = gauge(
        "objects_missing",
        "Objects that a retained checkpoint refers to and that the store does not have.",
        watch="Above 0 a checkpoint or savepoint cannot be restored; `tidelog inspect` says which.",
        default=0,
    )
    contents: CheckpointContents | None = None
    """What the last completed checkpoint holds."""
    phases: CheckpointPhases | None = None
    """Where the time of the last completed checkpoint went."""


@dataclass(frozen=True, slots=True)
class RestorePhases:
    """What a restore spent its time on; phases overlap, each counts once for all subtasks."""

    download_s: float = gauge(
        "restore_download_seconds",
        "Time in which the restore fetched and checked table files and wrote them to disk.",
        watch="The largest phase is what to speed up: here bandwidth, or local recovery.",
        default=0.0,
        across="max",
    )
    open_s: float = gauge(
        "restore_open_seconds",
        "Time in which the restore opened tables, and put them together in another parallelism.",
        watch="Large after a change of the parallelism.",
        default=0.0,
        across="max",
    )
    fetch_log_s: float = gauge(
        "restore_fetch_log_seconds",
        "Time in which the restore fetched the log from its segments.",
        watch="Large: materialize more often, or use local recovery.",
        default=0.0,
        across="max",
    )
    replay_s: float = gauge(
        "restore_replay_seconds",
        "Time in which the restore merged the log and loaded it into the tables.",
        watch="Large: materialize more often, or lower `materialize.replay_target`.",
        default=0.0,
        across="max",
    )


@dataclass(frozen=True, slots=True)
class HydrationStatus:
    """The tables of a job that handles records before all their files are here."""

    fraction: float = gauge(
        "hydration_fraction",
        "Share of the tables' bytes that is on the local disk, from 0 to 1; absent for a job that "
        "began when its tables were whole.",
        watch="Below 1 some records wait for the store.",
        default=1.0,
        across="min",
    )
    eta_s: float | None = gauge(
        "hydration_eta_seconds",
        "Estimated time until all tables are whole; absent before there is something to go by.",
        watch="When the job will be as fast as before.",
        default=None,
        across="max",
    )
    bytes: int = gauge(
        "hydration_bytes",
        "Bytes of the tables' files that are on the local disk.",
        watch="Its rate is the bandwidth that the rest has.",
    )
    total_bytes: int = gauge(
        "hydration_total_bytes",
        "Bytes of the files of all tables that were opened before their files were here.",
        watch="What is fetched while the job runs.",
    )
    blocks: int = counter(
        "hydration_blocks",
        "Parts of files that were fetched because a record needed them.",
        watch="Each is a request to the store.",
    )
    waits: int = counter(
        "hydration_waits",
        "Reads of functions that had to wait for the store, such as scans.",
        watch="A high rate: start such a job with `restore.begin` when-whole.",
    )
    waited_s: float = counter(
        "hydration_waited_seconds",
        "Time in which reads of functions waited for the store.",
        watch="The job stops as long.",
        default=0.0,
    )
    stalled: int = gauge(
        "hydration_stalled_tables",
        "Tables whose operators take no records until they are whole, as changes have made many "
        "files.",
        watch="Above 0 for long: start such a job with `restore.begin` when-whole.",
    )
    seconds: float | None = gauge(
        "hydration_seconds",
        "Time from the first record until all tables were whole; absent until then.",
        watch="Compare it with the time to recover that you promise.",
        default=None,
        across="max",
    )


@dataclass(frozen=True, slots=True)
class RestoreStatus:
    """The restore at the start of this run."""

    checkpoint: Slot
    fraction: float = gauge(
        "restore_fraction",
        "Share of the restore that is done, from 0 to 1.",
        watch="Below 1 the job is still restoring.",
        default=0.0,
        across="min",
    )
    eta_s: float | None = gauge(
        "restore_eta_seconds",
        "Estimated time until the restore is done; absent before there is something to go by and "
        "afterwards.",
        watch="When the job will handle records again.",
        default=None,
        across="max",
    )
    bytes: int = gauge(
        "restore_bytes",
        "Bytes of tables and log that the restore has read.",
        watch="Its rate is the bandwidth of the restore.",
    )
    total_bytes: int = gauge(
        "restore_total_bytes",
        "Bytes of tables and log that the restore reads in all.",
        watch="What a restart has to fetch.",
    )
    changes: int = gauge(
        "restore_changes",
        "Changes of the log that the restore has replayed.",
        watch="Its rate is the speed of the replay.",
    )
    total_changes: int = gauge(
        "restore_total_changes",
        "Changes of the log that the restore replays in all.",
        watch="What the materialization interval is there to bound.",
    )
    seconds: float | None = gauge(
        "restore_seconds",
        "Duration of the restore; absent until it is done.",
        watch="Compare it with the time to recover that you promise.",
        default=None,
        across="max",
    )
    phases: RestorePhases | None = None
    hydration: HydrationStatus | None = None
    """What arrives while the job runs; None for a job that began when its tables were whole."""
