"""Sessions of users: orders that are at most ten minutes apart, and what they cost together.

tidelog run visits.py:job --input data/orders --output out/visits --store out/visits-store
"""

from dataclasses import dataclass

from tidelog import FileSink, Job, JsonLinesSource, Session


@dataclass
class Arguments:
    input: str
    output: str


def job(arguments: Arguments) -> Job:
    job = Job("visits")
    orders = job.source(JsonLinesSource(arguments.input))
    timed = orders.event_time(lambda order: order.ms, max_delay_ms="1m")
    visits = timed.key_by(lambda order: order.user).window(Session("10m"))
    spent = visits.sum(lambda order: order.amount)
    spent.sink(FileSink(arguments.output, fields=("user", "start_ms", "end_ms", "spent")))
    return job
