"""Who may read and write what over HTTP: tokens from a file, rules from the configuration, or a hook of your own."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Protocol

from reknit.config import HttpSettings
from reknit.errors import InvalidConfig, InvalidTopic
from reknit.topic import Pattern

Action = Literal["read", "write"]
ANYONE = "*"
ANONYMOUS = "anonymous"


class Access(Protocol):
    """The hook. It is asked anew whenever a tunnel is opened, also one that goes on: what is replayed is what its
    user may read by then."""

    def who(self, token: str) -> str | None:
        """The user behind a token ("" where there was none), or None for a token that is not known."""

    def readable(self, user: str) -> tuple[Pattern, ...] | None:
        """The topics that a user may read; None is all of them."""

    def may_write(self, user: str, topic: str) -> bool:
        """Whether a user may publish on a topic."""


class Rules:
    """Access by rules such as `ann read plant/**` and `* write chat/*`. Without any, everyone may do everything.

    >>> rules = Rules(["ann read plant/**", "* write chat/*"], {"ann": "s3cret"})
    >>> rules.who("s3cret"), rules.who("guess")
    ('ann', None)
    >>> rules.may_write("ann", "chat/1"), rules.may_write("ann", "plant/1")
    (True, False)
    """

    def __init__(self, allow: Sequence[str] = (), tokens: dict[str, str] | None = None) -> None:
        self._is_open = not allow
        self._tokens = {user: token.encode() for user, token in (tokens or {}).items()}
        self._allowed: dict[tuple[str, str], list[Pattern]] = {}
        for rule in allow:
            self._add(rule)

    def _add(self, rule: str) -> None:
        try:
            user, action, text = rule.split()
            pattern = Pattern(text)
        except (ValueError, InvalidTopic) as error:
            why = f"has {rule!r}, which is no rule ({error}); write: NAME read|write PATTERN"
            raise InvalidConfig("http.allow", "settings", why) from None
        if action not in ("read", "write"):
            raise InvalidConfig(
                "http.allow", "settings", f"has {rule!r}: {action!r} is neither read nor write"
            )
        self._allowed.setdefault((user, action), []).append(pattern)

    def _patterns(self, user: str, action: Action) -> tuple[Pattern, ...]:
        everyone = self._allowed.get((ANYONE, action), [])
        return (*self._allowed.get((user, action), []), *everyone)

    def who(self, token: str) -> str | None:
        """The user behind a token."""
        if not token:
            return ANONYMOUS
        given = token.encode()
        found = None
        for user, known in self._tokens.items():
            if hmac.compare_digest(known, given):
                found = user
        return found

    def readable(self, user: str) -> tuple[Pattern, ...] | None:
        """What a user may read."""
        return None if self._is_open else self._patterns(user, "read")

    def may_write(self, user: str, topic: str) -> bool:
        """Whether a user may publish there."""
        return self._is_open or any(one.matches(topic) for one in self._patterns(user, "write"))


def from_settings(settings: HttpSettings) -> Rules:
    """The rules of the configuration. Raises `InvalidConfig`."""
    tokens: dict[str, str] = {}
    if settings.tokens_file:
        try:
            lines = Path(settings.tokens_file).read_text("utf-8").splitlines()
        except OSError as error:
            why = f"can't be read: {error.strerror}"
            raise InvalidConfig("http.tokens_file", settings.tokens_file, why) from None
        for number, line in enumerate(lines, 1):
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            if len(words) != 2:
                raise InvalidConfig("http.tokens_file", f"line {number}", "needs a name and a token")
            tokens[words[0]] = words[1]
    return Rules(settings.allow, tokens)
