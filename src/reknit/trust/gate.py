"""The gate of a node: every door asks it who somebody is and what they may do."""

from __future__ import annotations

from reknit import environment
from reknit.address import Address
from reknit.config import Config
from reknit.topic import Pattern, is_reserved
from reknit.trust.audit import Audit
from reknit.trust.identities import NOBODY, Identity, Unauthenticated
from reknit.trust.refusals import Refusals
from reknit.trust.rules import EVERYTHING, ITSELF, Rules
from reknit.trust.token_file import read_tokens
from reknit.trust.tokens import Tokens


class Gate:
    """Identities and rules, from one configuration. Raises `InvalidConfig`.

    >>> gate = Gate(Config())
    >>> gate.is_open, gate.who(""), gate.may_publish("anonymous", "plant/a")
    (True, 'anonymous', True)
    """

    def __init__(self, config: Config) -> None:
        security = config.security
        self._tokens = Tokens(read_tokens(security.tokens_file))
        # a file without tokens, as after the last was revoked, is not an open door
        self.rules = Rules(security.allow, names_matter=bool(security.tokens_file))
        self.audit = Audit(security, is_open=self.rules.is_open)
        self.refusals = Refusals(self.audit)

    @property
    def is_open(self) -> bool:
        """Whether everyone may do everything, because there is neither a rule nor a file of tokens."""
        return self.rules.is_open

    # -- who somebody is

    def identify(self, token: str, certified: str = "") -> Identity:
        """The identity behind a token, or behind a certificate. Raises `Unauthenticated`."""
        if token:
            return self._tokens.identify(token, environment.time_us())
        return Identity(certified, "certificate", certified) if certified else NOBODY

    def who(self, token: str) -> str | None:
        """The name behind a token; None for a token that is not valid."""
        try:
            return self.identify(token).name
        except Unauthenticated:
            return None

    # -- what they may do

    def may_publish(self, name: str, topic: str) -> bool:
        """Whether a name may publish on a topic. Only nodes write below `reknit/`, whatever the rules say."""
        if is_reserved(topic) and name != ITSELF:
            return False
        return self.is_open or any(one.matches(topic) for one in self.rules.patterns(name, "publish"))

    def may_read(self, name: str, topic: str) -> bool:
        """Whether a name may read a topic."""
        return self.is_open or any(one.matches(topic) for one in self.rules.patterns(name, "subscribe"))

    def may_subscribe(self, name: str, wanted: Pattern) -> bool:
        """Whether a name may read all topics that match a pattern."""
        return self.rules.may(name, "subscribe", wanted)

    def readable(self, name: str) -> tuple[Pattern, ...] | None:
        """The topics that a name may read; None for all."""
        patterns = self.rules.patterns(name, "subscribe")
        return None if EVERYTHING in patterns else patterns

    def may_be(self, name: str, source: Address) -> bool:
        """Whether events from an address may come from a name."""
        return self.rules.may_be(name, source)

    def is_admin(self, name: str) -> bool:
        """Whether a name may ask and change everything."""
        return self.rules.is_admin(name)

    def may_observe(self, name: str) -> bool:
        """Whether a name may see figures about all topics: status, ledger and metrics."""
        return self.is_admin(name) or self.may_subscribe(name, EVERYTHING)
