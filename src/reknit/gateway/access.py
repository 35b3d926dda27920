"""Access through a gateway: which user may read and write which topics, by configured rules or a hook of your own."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from typing import Literal, Protocol

from reknit.errors import InvalidConfig, InvalidTopic
from reknit.topic import Pattern

Action = Literal["read", "write"]
ANYONE = "*"
ANONYMOUS = "anonymous"


class Access(Protocol):
    """The hook. A gateway asks it whenever a tunnel is opened or resumed.

    A replay therefore contains only what the user may read at that time.
    """

    def who(self, token: str) -> str | None:
        """The user of a token ("" without a token). None if the token is unknown."""

    def readable(self, user: str) -> tuple[Pattern, ...] | None:
        """The topics that a user may read. None means all topics."""

    def may_write(self, user: str, topic: str) -> bool:
        """Whether a user may publish on a topic."""


class AccessRules:
    """Access by rules such as `ann read plant/**` and `* write chat/*`. Without rules, everyone may do everything.

    >>> rules = AccessRules(["ann read plant/**", "* write chat/*"], {"ann": "s3cret"})
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
            why = f"has {rule!r}, which is not a valid rule ({error}); write: NAME read|write PATTERN"
            raise InvalidConfig("http.allow", "settings", why) from None
        if action not in ("read", "write"):
            why = f"has {rule!r}: {action!r} is not a valid action; write read or write"
            raise InvalidConfig("http.allow", "settings", why)
        self._allowed.setdefault((user, action), []).append(pattern)

    def _patterns(self, user: str, action: Action) -> tuple[Pattern, ...]:
        everyone = self._allowed.get((ANYONE, action), [])
        return (*self._allowed.get((user, action), []), *everyone)

    def who(self, token: str) -> str | None:
        """The user of a token."""
        if not token:
            return ANONYMOUS
        given = token.encode("utf-8", "surrogatepass")  # a query may have bytes that are not UTF-8
        found = None
        for user, known in self._tokens.items():
            if hmac.compare_digest(known, given):
                found = user
        return found

    def readable(self, user: str) -> tuple[Pattern, ...] | None:
        """The topics that a user may read."""
        return None if self._is_open else self._patterns(user, "read")

    def may_write(self, user: str, topic: str) -> bool:
        """Whether a user may publish on a topic."""
        return self._is_open or any(one.matches(topic) for one in self._patterns(user, "write"))
