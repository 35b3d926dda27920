"""The rules of a node, as they are written in `security.allow`.

    NAME publish PATTERN      may publish on these topics, and offer to hold their events for others
    NAME subscribe PATTERN    may subscribe to these topics, and read their past
    NAME watch PATTERN        may see what became of the events on these topics: figures, never payloads or headers
    NAME as ADDRESS           may be the source of events with such an address
    NAME admin                may ask and change everything

NAME is an identity; `anonymous` is somebody who has proven none, and `*` is everyone. A PATTERN that begins with `/` or
`up:` is one of addresses. One that begins with a wildcard does not include the node's own topics below `reknit/`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from reknit.address import Address
from reknit.errors import InvalidAddress, InvalidConfig, InvalidTopic
from reknit.topic import Pattern

ANONYMOUS: Final = "anonymous"
"""The identity of somebody who has proven none."""
EVERYONE: Final = "*"
ITSELF: Final = ""
"""The identity of the node's own parts: relays, links, and gateways that have asked the gate for their clients."""
EVERYTHING: Final = Pattern("**")
VERBS: Final = ("publish", "subscribe", "watch", "as", "admin")
KNOWN_MAX: Final = 100_000
"""So many answers are remembered; then the memory is cleared."""


class Rules:
    """What every identity may do.

    Without a rule everyone may do everything. If `names_matter`, because there is a file of tokens, everyone who has
    proven a name may.

    >>> rules = Rules(["ann publish plant/**", "* subscribe plant/*/temp", "ann as //vcu/FFFF/1/FFFF"])
    >>> rules.may("ann", "publish", Pattern("plant/7")), rules.may("bob", "publish", Pattern("plant/7"))
    (True, False)
    >>> rules.may_be("ann", Address.parse("//vcu/10/1/8001"))
    True
    """

    def __init__(self, allow: Sequence[str], names_matter: bool = False) -> None:
        self.is_open = not allow and not names_matter
        """Whether everyone may do everything."""
        self._is_for_names = not allow and names_matter
        self._patterns: dict[tuple[str, str], list[Pattern]] = {}
        self._addresses: dict[str, list[Address]] = {}
        self._known: dict[tuple[str, str, str], bool] = {}
        """What was asked before about single topics."""
        for rule in allow:
            try:
                self._add(*rule.split())
            except (TypeError, InvalidTopic, InvalidAddress) as error:
                forms = "NAME publish|subscribe|watch PATTERN, NAME as ADDRESS, or NAME admin"
                why = f"has {rule!r}, which is not a valid rule ({error}); write {forms}"
                raise InvalidConfig("security.allow", "settings", why) from None

    def _add(self, name: str, verb: str, text: str = "") -> None:
        if verb not in VERBS or (verb == "admin") != (not text):
            raise TypeError(f"{verb!r} must be one of {', '.join(VERBS)}, and all but admin need a pattern")
        if verb == "as":
            self._addresses.setdefault(name, []).append(Address.parse(text))
        else:
            pattern = EVERYTHING if verb == "admin" else read_pattern(text)
            self._patterns.setdefault((name, verb), []).append(pattern)

    def is_free(self, name: str) -> bool:
        """Whether no rule is needed for this name."""
        return name == ITSELF or self.is_open or (self._is_for_names and name != ANONYMOUS)

    def patterns(self, name: str, verb: str) -> tuple[Pattern, ...]:
        """The topics on which a name may publish, or to which it may subscribe."""
        if self.is_free(name):
            return (EVERYTHING,)
        return tuple(pattern for who in (name, EVERYONE) for pattern in self._patterns.get((who, verb), ()))

    def may(self, name: str, verb: str, wanted: Pattern) -> bool:
        """Whether one rule allows all topics that are wanted."""
        return self.is_free(name) or any(one.includes(wanted) for one in self.patterns(name, verb))

    def may_watch(self, name: str, wanted: Pattern) -> bool:
        """Whether a name may see figures about topics. Who may read their events may."""
        return self.may(name, "watch", wanted) or self.may(name, "subscribe", wanted)

    def may_topic(self, name: str, verb: str, topic: str) -> bool:
        """Whether a rule allows one topic. The answer is remembered: it is asked for every batch or message."""
        key = (name, verb, topic)
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            allowed = self.patterns(name, verb)
            known = self._known[key] = self.is_free(name) or any(one.matches(topic) for one in allowed)
        return known

    def may_be(self, name: str, source: Address) -> bool:
        """Whether events from this address may come from that name."""
        allowed = [one for who in (name, EVERYONE) for one in self._addresses.get(who, ())]
        return self.is_free(name) or any(one.matches(source) for one in allowed)

    def publishes(self, name: str) -> bool:
        """Whether a name may publish anything at all."""
        return bool(self.patterns(name, "publish"))

    def is_admin(self, name: str) -> bool:
        """Whether a name may do everything."""
        return bool(self.patterns(name, "admin"))


def read_pattern(text: str) -> Pattern:
    """A pattern of topics, also where it is written as one of addresses.

    >>> read_pattern("//vcu/FFFFFFFF/1/FFFF").text, read_pattern("plant/**").text
    ('up/vcu/*/*/1/*', 'plant/**')
    """
    return Address.parse(text).pattern if text.startswith(("/", "up:")) else Pattern(text)
