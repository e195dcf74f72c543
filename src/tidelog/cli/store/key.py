"""`tidelog key`: keys of encrypted stores."""

import os
from pathlib import Path

import click

from tidelog.cli.exit_codes import EXIT_OK
from tidelog.cli.options import encryption_key_option, endpoint_option, key_place
from tidelog.cli.output import Output
from tidelog.cli.store.options import on_this_machine, opened
from tidelog.effects import Effects
from tidelog.errors import ConfigError, usable_path
from tidelog.storage.log_store import log_place
from tidelog.storage.open import StoreAccess, encryption_library


@click.group("key")
def command() -> None:
    """Make the key of an encrypted store, or change it."""


@command.command("new")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@on_this_machine
def new(output: Output, file: Path) -> int:
    """Write a new key to FILE, which must not exist; only its owner can read it.

    Keep a copy apart from the store: without the key nobody can read what was encrypted with it.
    """
    with encryption_library():
        from tidelog.storage.encryption.keys import key_id, key_line  # noqa: PLC0415
        from tidelog.storage.encryption.sealed import KEY  # noqa: PLC0415
    key = Effects().rng.randbytes(KEY)
    text = f"# The key local:{key_id(key)} of tidelog stores. Keep a copy in another place.\n"
    with usable_path(
        f"key file {file}",
        expected="a new file in a directory that can be written to",
        action="choose another name; a key is never overwritten",
    ):
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as stream:
            stream.write(f"{text}{key_line(key)}\n")
    name = f"local:{key_id(key)}"
    message = f"key {name} is in {file}; keep a copy in another place"
    output.show({"file": str(file), "key": name}, message)
    return EXIT_OK


@command.command("rotate")
@click.argument("url")
@encryption_key_option
@click.option(
    "--new-key", metavar="KEY", required=True, callback=key_place, help="Where the new key is."
)
@endpoint_option
@on_this_machine
async def rotate(
    output: Output, url: str, encryption_key: str | None, new_key: str, endpoint: str | None
) -> int:
    """Change the key of the store at URL from --encryption-key to --new-key.

    No object is rewritten: the keys of the store are wrapped with the new key, and what is written
    from now on has a key of its own. The old key opens the store no more; a copy of the store that
    was made before is still opened by it. A job that runs goes on; start it with the new key next
    time. A log in a store of its own is changed too.
    """
    if encryption_key is None:
        raise ConfigError(
            "--encryption-key",
            expected="where the key is that the store has now",
            found="nothing",
            action="name it, or set TIDELOG__ENCRYPTION_KEY",
        )
    with encryption_library():
        from tidelog.storage.encryption.keys import key_source  # noqa: PLC0415
        from tidelog.storage.encryption.ring import rotate as rotate_keys  # noqa: PLC0415
    async with opened(url, StoreAccess(endpoint, encryption_key), output) as invocation:
        effects, log_url = invocation.effects, await log_place(invocation.store)
        old, new = key_source(encryption_key, effects), key_source(new_key, effects)
        for store_url in filter(None, (log_url, url)):
            async with opened(store_url, StoreAccess(endpoint), output) as plain:
                store = plain.store
                ring = await rotate_keys(store, old, new, effects)
            if output.as_json:
                output.json_line({"url": store.url, "keys": len(ring.keys)})
            else:
                output.line(f"{store.url} is opened by {new.label} from now on")
    return EXIT_OK
