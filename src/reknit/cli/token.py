"""`reknit token`: the tokens by which clients prove who they are to a node."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reknit.cli.options import AsJson, ConfigFile
from reknit.cli.output import fail, plain, print_json, say

if TYPE_CHECKING:
    from reknit.trust.tokens import Token

app = typer.Typer(help="Create, list and revoke tokens.", no_args_is_help=True)

UNITS = {"m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
DAYS_MAX = 36_500

TokenName = Annotated[str, typer.Argument(metavar="NAME", help="The token's name, as it is revoked by.")]
TokensFile = Annotated[
    Path | None,
    typer.Option("--file", metavar="FILE", help="The file of tokens.  [default: security.tokens_file]"),
]


@app.command()
def create(
    name: TokenName,
    identity: Annotated[
        str, typer.Option("--identity", metavar="ID", help="Who presents it, as in the rules.")
    ],
    expires: Annotated[
        str, typer.Option("--expires", metavar="TIME", help="When it expires, as 90d, 12h or 30m.")
    ] = "",
    json: AsJson = False,
    file: TokensFile = None,
    config: ConfigFile = None,
) -> None:
    """Create a token, and print it once: the file has only its hash.

    A node that runs reads the file again by itself.
    """
    from reknit import environment
    from reknit.trust.token_file import add_token
    from reknit.trust.tokens import Token, check_names, digest_of, make_secret

    try:
        check_names(name, identity)
    except ValueError as error:
        fail(f"the token {error}")
    now_us = environment.time_us()
    expires_us = now_us + _seconds(expires) * 1_000_000 if expires else 0
    secret, path = make_secret(), _path(file, config)
    token = Token(name, identity, digest_of(secret), now_us, expires_us)
    add_token(path, token)
    if json:
        print_json({**_row(token), "token": secret})
    else:
        say(f"{plain(name)} proves the identity {plain(identity)}; it is shown only now:")
        typer.echo(secret)


@app.command("list")
def list_(json: AsJson = False, file: TokensFile = None, config: ConfigFile = None) -> None:
    """List the tokens: names, identities and times, never the tokens themselves."""
    from reknit.trust.token_file import read_tokens

    path = _path(file, config)
    rows = [_row(token) for token in read_tokens(path)]
    if json:
        print_json(rows)
    elif not rows:
        typer.echo(f"{path} has no tokens")
    else:
        from reknit.cli.tables import print_rows

        print_rows(rows, ("name", "identity", "created", "expires", "state"), ())


@app.command()
def revoke(name: TokenName, json: AsJson = False, file: TokensFile = None, config: ConfigFile = None) -> None:
    """Revoke a token. A node that runs disconnects whoever has presented it."""
    from reknit.trust.token_file import remove_token

    try:
        remove_token(_path(file, config), name)
    except LookupError as error:
        fail(error.args[0])
    if json:
        print_json({"name": name, "state": "revoked"})
    else:
        typer.echo(f"{plain(name)} is revoked")


def _path(file: Path | None, config: Path | None) -> str:
    """The file of tokens: as it is named, or as the settings say."""
    if file is not None:
        return str(file)
    from reknit.config import load

    path = load(config).security.tokens_file
    return path or fail("name the file of tokens with --file, or set security.tokens_file")


def _seconds(text: str) -> int:
    """How long a token is valid."""
    found = re.fullmatch(r"(\d{1,6})([mhdw])", text)
    seconds = int(found[1]) * UNITS[found[2]] if found else 0
    if not 0 < seconds <= DAYS_MAX * UNITS["d"]:
        fail(f"--expires {plain(text)} is not a time: write it as 90d, 12h or 30m, up to {DAYS_MAX}d")
    return seconds


def _row(token: Token) -> dict[str, Any]:
    from reknit import environment
    from reknit.trust.tokens import NEVER, time_text

    return {
        "name": token.name,
        "identity": token.identity,
        "created": time_text(token.created_us),
        "expires": time_text(token.expires_us) if token.expires_us else NEVER,
        "state": "expired" if token.has_expired(environment.time_us()) else "valid",
    }
