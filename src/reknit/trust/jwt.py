"""JSON Web Tokens (RFC 7519) of issuers that a node trusts, as they are written in `security.jwt`.

    https://login.example plant-events keys.json              the claim `sub` is the identity
    https://login.example plant-events keys.json corp/{email} another claim is, after a prefix

A line binds three things together: a token counts only if its key is in that file, under the id that the token names,
and it says that it is from that issuer, for that audience. The algorithms are fixed, and the type of a key has to fit.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from reknit.decoding import UNREADABLE
from reknit.errors import InvalidConfig
from reknit.trust.identities import Identity, Unauthenticated
from reknit.trust.tokens import check_names, digest_of, time_text

SETTING: Final = "security.jwt"
MEANS: Final = "jwt"
ALGORITHMS: Final = ("ES256", "ES384", "Ed25519", "PS256", "RS256")
"""Signatures with a private key, by today's standards; neither a shared secret nor none."""
JWT_CHARS_MAX: Final = 8_192
KEYS_BYTES_MAX: Final = 1 << 20
LEEWAY_S: Final = 30
"""How far the clock of an issuer may be ahead."""
VERIFIED_MAX: Final = 10_000
"""Tokens that need not be verified again; then the memory is cleared."""
_NAME: Final = re.compile(r"([^{}]*)\{(\w{1,64})\}")


class _Header(msgspec.Struct):
    alg: str
    kid: str


class _Claims(msgspec.Struct):
    iss: str
    aud: str | list[str]
    exp: float
    nbf: float = 0.0


class _Keys(msgspec.Struct):
    keys: list[dict[str, Any]]


class Issuer(NamedTuple):
    """A line of the table.

    >>> Issuer.parse("https://login.example plant keys.json corp/{email}")[3:]
    ('corp/', 'email')
    """

    issuer: str
    audience: str
    path: str
    prefix: str = ""
    claim: str = "sub"

    @classmethod
    def parse(cls, line: str) -> Issuer:
        """Read a line. Raises `InvalidConfig`."""
        words = line.split()
        name = _NAME.fullmatch(words[3] if len(words) == 4 else "{sub}")
        if len(words) not in (3, 4) or name is None:
            why = f"has {line!r}: write ISSUER AUDIENCE FILE, and perhaps an identity such as corp/{{email}}"
            raise InvalidConfig(SETTING, "settings", why)
        return cls(words[0], words[1], words[2], name[1], name[2])

    def evidence(self, kid: str) -> bytes:
        """By what a token with this key counted: it counts for as long as a line says the same."""
        return "\n".join((kid, self.issuer, self.audience, self.prefix, self.claim)).encode()


class JwtVerifier:
    """The issuers of one node, with their keys. Raises `InvalidConfig`."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines = tuple(lines)
        self._issuers = [Issuer.parse(line) for line in lines]
        self.files = sorted({one.path for one in self._issuers})
        self._keys: dict[str, list[tuple[Issuer, Any]]] = {}
        """By key id: each issuer with such a key, and the key."""
        self._verified: dict[bytes, Identity] = {}
        for issuer in self._issuers:
            for kid, key in _read_keys(issuer.path).items():
                self._keys.setdefault(kid, []).append((issuer, key))

    def takes(self, token: str) -> bool:
        """Whether a token looks like one of an issuer's."""
        return bool(self._issuers) and token.count(".") == 2

    def identify(self, token: str, now_us: int) -> Identity:
        """The identity behind a token. Raises `Unauthenticated`."""
        digest = digest_of(token[: JWT_CHARS_MAX + 1])
        identity = self._verified.get(digest)
        if identity is None:
            identity = self._verify(token, now_us)
            if len(self._verified) >= VERIFIED_MAX:
                self._verified.clear()
            self._verified[digest] = identity
        if why := self.objection(identity, now_us):
            raise Unauthenticated(why)
        return identity

    def objection(self, identity: Identity, now_us: int) -> str:
        """Why an identity that such a token has proven no longer holds; empty if it does."""
        if identity.expires_us <= now_us:
            return f"the token of {identity.name} expired at {time_text(identity.expires_us)}"
        kid, *_ = identity.evidence.decode().split("\n")
        if not any(one.evidence(kid) == identity.evidence for one, _ in self._keys.get(kid, ())):
            return f"the key {kid!r} of {identity.proof} is no longer trusted for this audience ({SETTING})"
        return ""

    def _verify(self, token: str, now_us: int) -> Identity:
        if len(token) > JWT_CHARS_MAX:
            raise Unauthenticated(f"a token may have {JWT_CHARS_MAX:,} characters at most")
        header = _header(token)
        if header.alg not in ALGORITHMS:
            raise Unauthenticated(f"a token may be signed by {', '.join(ALGORITHMS)} only")
        for issuer, key in self._keys.get(header.kid, ()):
            claims = _claims(token, key, header.alg)
            if claims is not None and claims.get("iss") == issuer.issuer:
                return _identity(issuer, header.kid, claims, now_us)
        raise Unauthenticated(
            "this token is not signed by a key of an issuer that is trusted here (security.jwt)"
        )


def _header(token: str) -> _Header:
    """What a token says about its signature. Raises `Unauthenticated`."""
    first = token.partition(".")[0]
    try:
        data = base64.b64decode(first + "=" * (-len(first) % 4), altchars=b"-_", validate=True)
        return msgspec.json.decode(data, type=_Header)
    except (binascii.Error, ValueError, *UNREADABLE):
        raise Unauthenticated("this is not a valid JSON Web Token with a key id") from None


def _claims(token: str, key: Any, algorithm: str) -> Mapping[str, Any] | None:
    """The claims of a token that this key has signed; None if it has not."""
    from joserfc import jwt
    from joserfc.errors import JoseError

    try:
        claims = jwt.decode(token, key, algorithms=[algorithm]).claims
    except (JoseError, ValueError, TypeError, RecursionError):
        return None
    return claims if isinstance(claims, dict) else None


def _identity(issuer: Issuer, kid: str, claims: Mapping[str, Any], now_us: int) -> Identity:
    """The identity in verified claims. Raises `Unauthenticated`."""
    try:
        known = msgspec.convert(claims, _Claims)
        expires_us = int(known.exp * 1_000_000)
        time_text(expires_us)
    except (msgspec.ValidationError, ValueError, OverflowError, OSError):
        raise Unauthenticated("a token needs the claims iss, aud and exp") from None
    if issuer.audience not in ([known.aud] if isinstance(known.aud, str) else known.aud):
        raise Unauthenticated("this token is for another audience")
    if known.nbf > now_us / 1_000_000 + LEEWAY_S:
        raise Unauthenticated("this token is not valid yet")
    name = claims.get(issuer.claim)
    try:
        check_names("token", identity := f"{issuer.prefix}{name if isinstance(name, str) else ''}")
    except ValueError:
        raise Unauthenticated(f"the claim {issuer.claim!r} of this token can't be an identity") from None
    return Identity(identity, MEANS, issuer.issuer, expires_us, issuer.evidence(kid))


def _read_keys(path: str) -> dict[str, Any]:
    """The public keys in a file (a JWK set, RFC 7517), by their ids. Raises `InvalidConfig`."""
    try:
        from joserfc.errors import JoseError
        from joserfc.jwk import import_key
    except ModuleNotFoundError as error:
        raise InvalidConfig(SETTING, "settings", f"needs {error.name}: pip install 'reknit[jwt]'") from None
    try:
        with open(path, "rb") as file:
            keys = msgspec.json.decode(file.read(KEYS_BYTES_MAX), type=_Keys).keys
        if any("d" in key or key.get("kty") == "oct" for key in keys):
            raise InvalidConfig(SETTING, path, "has private or shared keys: a node needs public keys only")
        return {str(key["kid"]): import_key(key) for key in keys}
    except OSError as error:
        raise InvalidConfig(
            SETTING, path, f"can't be read: {os.strerror(error.errno or 0).lower()}"
        ) from None
    except (*UNREADABLE, JoseError, KeyError, ValueError, TypeError) as error:
        if isinstance(error, InvalidConfig):
            raise
        raise InvalidConfig(SETTING, path, "is not a JWK set whose keys have ids (kid)") from None
