"""Tokens: secrets that prove an identity. A node knows only their hashes, with names by which they are revoked.

A token has 256 random bits. Nobody can guess it, so one fast hash protects it as well as a slow one would, and a client
can't make a node compute for long. Passwords, which people choose, would need a slow hash.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Final, NamedTuple

from reknit import environment
from reknit.errors import InvalidConfig
from reknit.trust.identities import Identity, Unauthenticated
from reknit.trust.rules import ANONYMOUS, EVERYONE

SECRET_PREFIX: Final = "reknit_"
"""Every token begins with it, so that people and scanners recognise one that leaked."""
SECRET_BYTES: Final = 32
SECRET_CHARS_MAX: Final = 8_192
"""A longer text is not a token."""
HASH: Final = "sha256:"
NEVER: Final = "never"
MEANS: Final = "token"
UNKNOWN: Final = "this token is not known here (security.tokens_file)"


class Token(NamedTuple):
    """A token, as a node knows it.

    >>> Token("laptop", "ann", bytes(32), 0, 0).line.split()[3:]
    ['1970-01-01T00:00:00Z', 'never']
    """

    name: str
    identity: str
    digest: bytes
    created_us: int
    expires_us: int
    """0 for never."""

    @classmethod
    def parse(cls, words: list[str]) -> Token:
        """Read the words of a line. Raises `ValueError`, which never quotes a secret."""
        if len(words) != 5:
            raise ValueError("needs a name, an identity, a hash, the time of creation, and that of expiry")
        name, identity, digest, created, expires = words
        check_names(name, identity)
        if not digest.startswith(HASH) or len(digest) != len(HASH) + 64:
            raise ValueError(f"needs a hash as {HASH} and 64 hexadecimal digits")
        try:
            hashed = bytes.fromhex(digest.removeprefix(HASH))
            return cls(
                name, identity, hashed, _time_us(created), 0 if expires == NEVER else _time_us(expires)
            )
        except ValueError:
            raise ValueError(
                "has a hash that is not hexadecimal, or a time that is not as 2026-01-31T12:00:00Z"
            ) from None

    @property
    def line(self) -> str:
        """The token as a line of its file."""
        expires = time_text(self.expires_us) if self.expires_us else NEVER
        return f"{self.name} {self.identity} {HASH}{self.digest.hex()} {time_text(self.created_us)} {expires}"

    def has_expired(self, now_us: int) -> bool:
        """Whether it is no longer valid."""
        return 0 < self.expires_us <= now_us


def make_secret() -> str:
    """A new token, to be shown once.

    >>> len(make_secret())
    50
    """
    random = environment.token_bytes(SECRET_BYTES)
    return SECRET_PREFIX + base64.urlsafe_b64encode(random).rstrip(b"=").decode()


def digest_of(secret: str) -> bytes:
    """The hash of a token, which is what a node knows."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).digest()


def check_names(name: str, identity: str) -> None:
    """Refuse names that a line of the file can't hold, and identities that nobody can prove. Raises `ValueError`."""
    for what, text in (("name", name), ("identity", identity)):
        if not text or not text.isprintable() or text != "".join(text.split()) or text.startswith("#"):
            raise ValueError(f"needs a {what} without spaces, which does not begin with '#'")
    if identity in (ANONYMOUS, EVERYONE):
        raise ValueError(f"can't prove the identity {identity!r}: it stands for those who have proven none")


def time_text(time_us: int) -> str:
    """A time as it is written in the file.

    >>> time_text(1_800_000_000_000_000)
    '2027-01-15T08:00:00Z'
    """
    return datetime.fromtimestamp(time_us // 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _time_us(text: str) -> int:
    read = datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    return int(read.timestamp()) * 1_000_000


class Tokens:
    """The tokens of one node.

    >>> tokens = Tokens([Token("laptop", "ann", digest_of("s3cret"), 0, 0)])
    >>> tokens.identify("s3cret", now_us=0).name
    'ann'
    """

    def __init__(self, tokens: Iterable[Token] = ()) -> None:
        self._by_digest = {token.digest: token for token in tokens}

    def identify(self, secret: str, now_us: int) -> Identity:
        """The identity behind a token. Raises `Unauthenticated`.

        The time that finding a hash takes tells something about hashes, never about the tokens behind them.
        """
        digest = digest_of(secret[:SECRET_CHARS_MAX])
        token = self._by_digest.get(digest)
        if token is None or not hmac.compare_digest(token.digest, digest):
            raise Unauthenticated(UNKNOWN)
        if token.has_expired(now_us):
            raise Unauthenticated(_expired(token))
        return Identity(token.identity, MEANS, token.name, token.expires_us, token.digest)

    def expires_us(self, identity: Identity) -> int:
        """When an identity that a token has proven will expire; 0 for never. The file may say another time by now."""
        token = self._by_digest.get(identity.evidence)
        return identity.expires_us if token is None else token.expires_us

    def objection(self, identity: Identity, now_us: int) -> str:
        """Why an identity that a token has proven no longer holds; empty if it does."""
        token = self._by_digest.get(identity.evidence)
        if token is None or token.identity != identity.name:
            return f"the token {identity.proof!r} of {identity.name} was revoked"
        return _expired(token) if token.has_expired(now_us) else ""


def _expired(token: Token) -> str:
    return f"the token {token.name!r} of {token.identity} expired at {time_text(token.expires_us)}"


def parse_tokens(text: str, setting: str, path: str) -> Iterator[Token]:
    """The tokens in the text of a file. Raises `InvalidConfig`, which names the line."""
    known: set[str | bytes] = set()
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) == 2:
            why = (
                "has a token in plain text: tokens are stored as hashes now. Move this file away, and create each "
                f"token anew: reknit token create NAME --identity NAME --file {path}"
            )
            raise InvalidConfig(setting, f"{path} line {number}", why)
        try:
            token = Token.parse(words)
        except ValueError as error:
            raise InvalidConfig(setting, f"{path} line {number}", str(error)) from None
        if token.name in known or token.digest in known:
            raise InvalidConfig(
                setting, f"{path} line {number}", "has the name or the hash of an earlier line"
            )
        known |= {token.name, token.digest}
        yield token
