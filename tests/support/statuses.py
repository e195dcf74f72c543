"""A job's status in which every series has a value of its own."""

from tidelog.checkpoint.local_copies import LocalCopiesStatus
from tidelog.checkpoint.sizes import CheckpointContents, CheckpointSizes
from tidelog.ids import Generation, Slot
from tidelog.runtime.checkpoints.completed import CheckpointPhases
from tidelog.runtime.status.checkpoints import (
    CheckpointsStatus,
    HydrationStatus,
    RestorePhases,
    RestoreStatus,
)
from tidelog.runtime.status.distribution import Distribution
from tidelog.runtime.status.status import (
    JobStatus,
    MemoryStatus,
    OperatorStatus,
    TaskStatus,
    WorkerStatus,
)
from tidelog.runtime.status.storage import (
    MaterializationsStatus,
    RequestsStatus,
    StateStatus,
    StoreStatus,
    UploadsStatus,
)


def spread(start: float) -> Distribution:
    return Distribution(start + 0.1, start + 0.2, start + 0.3, start + 0.4)


def requests(start: int) -> RequestsStatus:
    return RequestsStatus(*range(start, start + 5), start + 5.5, spread(start + 6))


STATUS = JobStatus(
    job="words",
    phase="running",
    at_s=0.0,
    age_s=0.25,
    generation=Generation(7),
    operators=(
        OperatorStatus("source", True, 2, 1000, 900, 0.5, 0),
        OperatorStatus(
            *(
                "count",
                False,
                2,
                900,
                0,
                1.5,
                4096,
                2.5,
                7,
                70,
                1_700_000_000_000,
                8,
                9,
                3,
                95,
                96,
                1,
            ),
            *(0.375, 1.75, 17, spread(84)),
            tasks=(TaskStatus(0, 1.125, 2.25, 65, 66, 67.5), TaskStatus(1, 0.375, 0.25, 68, 69)),
        ),
    ),
    workers=(WorkerStatus(0, 4711, 2, 990, 1.625, 210, 0.625), WorkerStatus(1, 4712, 1, 10)),
    checkpoints=CheckpointsStatus(
        *(11, 12, 0.13, 0.14, 0.15, 16, None, "no room", Slot(17)),
        CheckpointSizes(71, 72, 73, 74),
        dropped_buffers=18,
        interval_s=19.5,
        age_s=20.5,
        contents=CheckpointContents(75, 76, 77, 78, 79.5, 80.5, 88, 89),
        phases=CheckpointPhases(91.5, 92.5, 93.5, 94.5),
    ),
    uploads=UploadsStatus(
        *(21, 22, 23, 24, 25.5, 26, 27, 28.5, spread(80), spread(81), spread(82)),
        *(29, 30, spread(90)),
    ),
    materializations=MaterializationsStatus(31, 32, 33, 34.5, 35, None, spread(83), 36.5, 37, 38.5),
    state=StateStatus(41, 42, 43, 44, 45, 46),
    restore=RestoreStatus(
        *(Slot(5), 0.25, 3.5, 51, 52, 53, 54, 55.5, RestorePhases(56.5, 57.5, 58.5, 59.5)),
        HydrationStatus(0.75, 60.5, 62, 63, 64, 65, 66.5, 67, 68.5),
    ),
    deleted_objects=61,
    memory=MemoryStatus(1000, 201, 202, 203, 204, 205, 206),
    local_copies=LocalCopiesStatus(301, 302, 303, 304, 305, 306, 307, 308, 309, None),
    store=StoreStatus(*(requests(n) for n in range(100, 160, 10)), 160, 161),
)
