"""`tidelog clone`: a checkpoint as the beginning of another store."""

import click

from tidelog.catalog.clone import Clone
from tidelog.catalog.locate import parse_origin
from tidelog.cli.exit_codes import EXIT_OK
from tidelog.cli.options import encryption_key_option, endpoint_option, key_place, log_store_option
from tidelog.cli.output import Output, fields_of
from tidelog.cli.store.options import on_this_machine
from tidelog.cli.values import size
from tidelog.effects import Effects
from tidelog.options.units import plural
from tidelog.storage.open import StoreAccess, is_remote


@click.command("clone")
@click.argument("origin", metavar="URL@N")
@click.argument("target", metavar="NEWURL")
@click.option("--copy", is_flag=True, help="Copy every object, also where the stores could share.")
@click.option(
    "--keep-output",
    is_flag=True,
    help="The clone goes on with the origin's output, which must not run any more and is "
    "refused by its sinks from then on: it commits what the checkpoint had pre-committed.",
)
@click.option(
    "--origin-key",
    metavar="KEY",
    callback=key_place,
    help="Where the key of the origin is, when it is not that of the clone; none: it is not "
    "encrypted.",
)
@log_store_option
@endpoint_option
@encryption_key_option
@on_this_machine
async def command(
    output: Output,
    origin: str,
    target: str,
    copy: bool,
    keep_output: bool,
    origin_key: str | None,
    log_store: str | None,
    endpoint: str | None,
    encryption_key: str | None,
) -> int:
    """Begin the store at NEWURL with a checkpoint of another one.

    URL@N is a checkpoint by its number: URL@7, URL@latest, or URL@NAME of a savepoint. A job that
    is started on NEWURL resumes from it and goes its own way; give it an output of its own. The two
    stores never depend on each other: on one local disk they share files, each with a name of its
    own, elsewhere the objects are copied, and so is what is encrypted in one of them. The origin is
    only read; its job may run.
    """
    effects = Effects()
    parsed_origin = parse_origin(origin)
    key = None if origin_key == "none" else origin_key or encryption_key
    alike = is_remote(parsed_origin.url) == is_remote(target)

    def access(url: str, key: str | None) -> StoreAccess:
        # Where one of the stores is local, the endpoint is that of the other one.
        return StoreAccess(endpoint if alike or is_remote(url) else None, key)

    source = access(parsed_origin.url, key).open(parsed_origin.url, effects)
    destination = access(target, encryption_key).open(target, effects, log_url=log_store)
    clone = Clone(source, destination, effects, sharing=not copy, keep_transactions=keep_output)
    try:
        with output.progress("cloning") as progress:
            cloned = await clone.run(parsed_origin.checkpoint, progress)
    finally:
        await source.close()
        await destination.close()
        effects.offload.close()
    checkpoint = cloned.checkpoint
    output.show(
        {
            **fields_of(cloned, "checkpoint"),
            "url": destination.url,
            "origin": source.url,
            "checkpoint": checkpoint.slot,
        },
        f"checkpoint {checkpoint.slot} of {parsed_origin.url} is the beginning of "
        f"{destination.url}: {plural(cloned.shared, 'object')} of {size(cloned.shared_bytes)} "
        f"shared, {cloned.copied} of {size(cloned.copied_bytes)} copied",
    )
    return EXIT_OK
