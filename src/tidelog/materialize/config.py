"""When tables are uploaded, as a job sets it."""

from dataclasses import dataclass

from tidelog.options.declaration import option
from tidelog.options.kinds import ABOVE_ZERO, Duration, Flag, Integer, Number, Range, Size


@dataclass(frozen=True, slots=True)
class MaterializeConfig:
    """Triggers of a materialization; times in seconds, sizes in bytes."""

    enabled: bool = option(
        True,
        Flag(),
        "Whether tables are uploaded from time to time, so that the log before can go.",
        when="Off only for short jobs and tests: the log then grows, and a restart replays all.",
    )
    interval: float = option(
        60.0,
        Duration(ABOVE_ZERO),
        "How often each table is uploaded, at moments spread over the subtasks.",
        when="Longer uploads and compacts less, keeps more log and replays more after a failure; "
        "`tidelog plan` finds it for a restore time and a budget.",
    )
    replay_target: float = option(
        2.0,
        Duration(ABOVE_ZERO),
        "A table is uploaded early when a restart would replay its log for longer than this.",
        when="Shorter makes restarts faster and uploads more often.",
        aliases=("--replay-target",),
    )
    replay_share: float = option(
        0.2,
        Number(Range(0)),
        "For `materialize.replay_target` the replay must also take this share of the time that "
        "the table takes to load.",
        when="Lower it when large tables restart too slowly because of their log.",
    )
    replay_rate: float = option(
        700_000.0,
        Number(ABOVE_ZERO),
        "Changes a second that a restore replays, for the estimate of a replay.",
        when="Set what a restore of your job reports, where it is far from this.",
    )
    load_rate: float = option(
        100e6,
        Size(per_second=True),
        "Bytes of a table that a restore loads a second, for the estimate of a replay.",
        when="Set the speed of your link to the store.",
    )
    log_factor: float = option(
        4.0,
        Number(ABOVE_ZERO),
        "A table is uploaded early when its log is this many times its size.",
        when="Lower it to keep less log; raise it when few keys change all the time.",
    )
    min_log_bytes: int = option(
        256 << 20,
        Size(Range(0)),
        "The smallest log for which `materialize.log_factor` counts.",
        when="Lower it where storage is dear and tables are small.",
    )
    bytes_per_s: float | None = option(
        None,
        Size(per_second=True),
        "Bandwidth that uploads of tables may take, over all subtasks of the process.",
        when="Set it where the link is shared and tables crowd out the log.",
        none="unlimited",
    )
    tolerable_failures: int = option(
        10,
        Integer(Range(0)),
        "Materializations of one subtask in a row that may fail before the job stops.",
        when="More where checkpoints go on and only tables cannot be stored for a while; the log "
        "keeps everything meanwhile.",
    )
    retry_pause: float = option(
        5.0,
        Duration(ABOVE_ZERO),
        "Pause before a failed materialization is tried again.",
        when="Raise it when retries load a store that recovers.",
    )
