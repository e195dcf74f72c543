"""`tidelog fork`: a checkpoint as the beginning of another store."""

import click

from tidelog.catalog.fork import Fork, Forked
from tidelog.catalog.locate import Origin, parse_origin
from tidelog.cli.options import encryption_key_option, endpoint_option, key_place, log_store_option
from tidelog.cli.output import Output, fields_of
from tidelog.cli.store.options import EXIT_OK, on_this_machine
from tidelog.cli.values import size
from tidelog.effects import Effects
from tidelog.storage.access import StoreAccess


@click.command("fork")
@click.argument("origin", metavar="URL@SLOT")
@click.argument("target", metavar="NEWURL")
@click.option("--copy", is_flag=True, help="Copy every object, also where the stores could share.")
@click.option(
    "--keep-output",
    is_flag=True,
    help="The fork goes on with the origin's output, which must not run any more: it commits what "
    "the checkpoint had pre-committed.",
)
@log_store_option
@endpoint_option
@encryption_key_option
@click.option(
    "--origin-key",
    metavar="KEY",
    callback=key_place,
    help="Where the key of the origin is, when it is not that of the fork; none: it is not "
    "encrypted.",
)
@on_this_machine
async def command(
    output: Output,
    origin: str,
    target: str,
    copy: bool,
    keep_output: bool,
    log_store: str | None,
    endpoint: str | None,
    encryption_key: str | None,
    origin_key: str | None,
) -> int:
    """Begin the store at NEWURL with a checkpoint of another one.

    URL@SLOT is a checkpoint: URL@7, URL@latest, or URL@NAME of a savepoint. A job that is started
    on NEWURL resumes from it and goes its own way; give it an output of its own. The two stores
    never depend on each other: on one local disk they share files, each with a name of its own,
    elsewhere the objects are copied, and so is what is encrypted in one of them. The origin is
    only read; its job may run.
    """
    effects = Effects()
    wanted = parse_origin(origin)
    access = StoreAccess(endpoint, encryption_key)
    origin_access = access if origin_key is None else StoreAccess(endpoint, _key(origin_key))
    source = origin_access.open(wanted.url, effects)
    destination = access.open(target, effects, log_url=log_store)
    try:
        fork = Fork(source, destination, effects, sharing=not copy, keep_transactions=keep_output)
        with output.progress("forking") as progress:
            forked = await fork.run(wanted.place, progress)
    finally:
        await source.close()
        await destination.close()
        effects.offload.close()
    _report(output, wanted, source.url, destination.url, forked)
    return EXIT_OK


def _key(text: str) -> str | None:
    return None if text == "none" else text


def _report(output: Output, wanted: Origin, url: str, target: str, forked: Forked) -> None:
    slot = forked.checkpoint.slot
    if output.as_json:
        output.document(
            {
                **fields_of(forked, "checkpoint"),
                "url": target,
                "origin": url,
                "slot": slot,
                "checkpoint_id": forked.checkpoint.checkpoint_id,
            }
        )
        return
    output.line(
        f"slot {slot} of {wanted.url} is the beginning of {target}: {forked.shared} objects of "
        f"{size(forked.shared_bytes)} shared, {forked.copied} of {size(forked.copied_bytes)} copied"
    )
