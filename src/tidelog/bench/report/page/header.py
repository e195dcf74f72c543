"""Where the numbers come from: machine, versions, revision, seed, size, pairs, date, load."""

from collections.abc import Iterator, Sequence

from tidelog.bench.measurement import Size
from tidelog.bench.records import SessionRecord
from tidelog.bench.report.chapter import Told
from tidelog.bench.report.markup import Markup, join, tag
from tidelog.bench.report.numbers import number
from tidelog.bench.report.verdict import ENOUGH

_HASH = 12


def header(told: Sequence[Told]) -> Markup:
    """Title, a block per session, and how much the numbers mean."""
    return tag(
        "header",
        tag("p", "tidelog bench", class_="kicker"),
        tag("h1", "Benchmark report"),
        [_session(each) for each in told],
        _remark([each.session for each in told]),
    )


def _session(told: Told) -> Markup:
    entries = [tag("div", tag("dt", name), tag("dd", value)) for name, value in _facts(told)]
    return tag("dl", entries, class_="facts")


def _facts(told: Told) -> Iterator[tuple[str, str]]:
    session = told.session
    yield "Session", session.session
    yield "Date", session.started.replace("T", " ").replace("+00:00", " UTC")
    yield "Size", f"{session.size}, {session.pairs} {'pair' if session.pairs == 1 else 'pairs'}"
    yield "Seed", str(session.seed)
    yield "Machine", _machine(session)
    if told.loads is not None:
        low, high = told.loads
        yield "Load", f"{number(low)} to {number(high)} when trials began"
    if told.stolen:
        yield "Host", f"gave up to {told.stolen:.1%} of the processor to others during a trial"
    yield "Versions", ", ".join(f"{name} {of}" for name, of in sorted(session.versions.items()))
    revision = "no checkout" if session.revision is None else session.revision[:_HASH]
    yield "Revision", f"{revision}, source {session.source[:_HASH]}"


def _machine(session: SessionRecord) -> str:
    machine = session.machine
    known = [
        str(machine["cpu"]) if "cpu" in machine else None,
        f"{machine['cores']} cores" if "cores" in machine else None,
        f"{machine['memory_gb']} GB" if "memory_gb" in machine else None,
        str(machine["system"]) if "system" in machine else None,
    ]
    return ", ".join(part for part in known if part)


def _remark(sessions: Sequence[SessionRecord]) -> Markup | None:
    few = [session for session in sessions if session.pairs < ENOUGH]
    if not few:
        return None
    quick = any(session.size == Size.QUICK for session in few)
    pairs = min(session.pairs for session in few)
    return tag(
        "p",
        tag("strong", "These numbers mean little. "),
        join(
            f"{'A quick session' if quick else 'This session'} has "
            f"{'one pair' if pairs == 1 else f'{pairs} pairs'} of each cell",
            ", small state and short runs" if quick else "",
            f": it shows that everything works. {ENOUGH} pairs tell a difference from noise.",
        ),
        class_="remark",
        role="note",
    )
