"""The whole page as text."""

from collections.abc import Iterator, Sequence
from importlib.resources import files
from typing import Final

from tidelog.concurrency import Progress, no_progress
from tidelog_bench.measurement import Size
from tidelog_bench.report.chapter import Chapter, LoadedSession
from tidelog_bench.report.markup import Markup, join, tag
from tidelog_bench.report.numbers import number
from tidelog_bench.report.page.overview import overview
from tidelog_bench.report.page.section import section
from tidelog_bench.report.verdict import ENOUGH
from tidelog_bench.session.records import SessionRecord

_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""A browser that obeys it loads nothing, whatever a record contains."""
_GROUPS: Final = {
    "embedded": "Embedded runtime",
    "spark": "Spark",
    "peers": "Peers",
    "more": "More",
}


def page(
    sessions: Sequence[LoadedSession],
    chapters: Sequence[Chapter],
    unknown: Sequence[str],
    progress: Progress = no_progress,
) -> str:
    """HTML; `unknown` experiments are in a session but not in this version of the library."""
    style = files("tidelog_bench.report.page").joinpath("style.css").read_text(encoding="utf-8")
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("title", f"Benchmark report {sessions[0].session.session}"),
        tag("style", Markup(style)),
    )
    body = tag(
        "body",
        header(sessions),
        _contents(chapters),
        tag(
            "main",
            overview(chapters),
            _sections(chapters, len(sessions) > 1, progress),
            [tag("p", f"{name}: not known to this version.", class_="note") for name in unknown],
        ),
        _footer(),
    )
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def _sections(chapters: Sequence[Chapter], several: bool, progress: Progress) -> Iterator[Markup]:
    for done, chapter in enumerate(chapters):
        progress(done, len(chapters))
        yield section(chapter, several)


def _contents(chapters: Sequence[Chapter]) -> Markup | None:
    groups: dict[str, list[Markup]] = {}
    for chapter in chapters:
        experiment = chapter.answer.experiment
        link = tag("a", experiment.name, href=f"#{experiment.name}")
        groups.setdefault(experiment.group, []).append(tag("li", link))
    items = [
        tag("li", tag("span", _GROUPS[group], class_="group"), tag("ul", links))
        for group, links in groups.items()
    ]
    return tag("nav", tag("ul", items), aria_label="Experiments") if items else None


def _footer() -> Markup:
    return tag(
        "footer",
        tag(
            "p",
            "The variants of a pair ran one after the other in fresh processes, in reverse order "
            "every other time, with the same seed; the warm-up does not count. All numbers come "
            "from the session's records.",
        ),
    )


_HASH = 12


def header(sessions: Sequence[LoadedSession]) -> Markup:
    """Title, a block per session, and how much the numbers mean."""
    return tag(
        "header",
        tag("p", "tidelog bench", class_="kicker"),
        tag("h1", "Benchmark report"),
        [_session(each) for each in sessions],
        _remark([each.session for each in sessions]),
    )


def _session(loaded: LoadedSession) -> Markup:
    entries = [tag("div", tag("dt", name), tag("dd", value)) for name, value in _facts(loaded)]
    return tag("dl", entries, class_="facts")


def _facts(loaded: LoadedSession) -> Iterator[tuple[str, str]]:
    session = loaded.session
    yield "Session", session.session
    yield "Date", session.started.replace("T", " ").replace("+00:00", " UTC")
    yield "Size", f"{session.size}, {session.pairs} {'pair' if session.pairs == 1 else 'pairs'}"
    yield "Seed", str(session.seed)
    yield "Machine", _machine(session)
    if loaded.loads is not None:
        low, high = loaded.loads
        yield "Load", f"{number(low)} to {number(high)} when trials began"
    if loaded.stolen:
        yield "Host", f"gave up to {loaded.stolen:.1%} of the processor to others during a trial"
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
