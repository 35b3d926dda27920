"""The gate of a node: every door asks it who somebody is and what they may do."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from reknit import environment
from reknit.address import Address
from reknit.config import Config
from reknit.config.loader import is_file, reread
from reknit.config.quotas import Quotas
from reknit.credentials import NO_CREDENTIALS, Credentials
from reknit.errors import InvalidConfig
from reknit.topic import Pattern, is_reserved
from reknit.trust.attempts import FailedAttempts
from reknit.trust.audit import Audit
from reknit.trust.connection_counts import ConnectionCounts
from reknit.trust.identities import Identity, Unauthenticated
from reknit.trust.jwt import MEANS as JWT
from reknit.trust.jwt import SETTING as ISSUERS
from reknit.trust.jwt import JwtVerifier
from reknit.trust.logins import Logins
from reknit.trust.mapping import CERTIFICATE, UNIX, Authorities, IdentityMapping, authority_of
from reknit.trust.mapping import SETTING as MAPPING
from reknit.trust.refusals import Refusals
from reknit.trust.rules import EVERYTHING, ITSELF, Rules
from reknit.trust.source_counts import SourceCounts
from reknit.trust.tickets import Tickets
from reknit.trust.token_file import read_tokens
from reknit.trust.tokens import MEANS as TOKEN
from reknit.trust.tokens import Tokens

ALLOW = "security.allow"


class Gate:
    """Identities and rules, from one configuration. Raises `InvalidConfig`.

    >>> gate = Gate(Config())
    >>> gate.is_open, gate.identify("").name, gate.may_publish("anonymous", "plant/a")
    (True, 'anonymous', True)
    """

    def __init__(self, config: Config) -> None:
        security = config.security
        self._origin = config.origin(ALLOW)
        self._mapping_origin = config.origin(MAPPING)
        self._jwt_origin = config.origin(ISSUERS) if security.jwt else self._origin
        self._tokens_path = security.tokens_file
        self._tokens = Tokens(read_tokens(security.tokens_file))
        self._jwt = JwtVerifier(security.jwt)
        self._is_required = security.identities_required
        self._mapping = IdentityMapping(security.identities, self._is_required)
        self.rules = self._make_rules(security.allow)
        self.audit = Audit(security, is_open=self.rules.is_open)
        self.refusals = Refusals(self.audit)
        self.attempts = FailedAttempts()
        self.tickets = Tickets()
        self.logins = Logins()
        self.quotas = Quotas(security.quotas)
        self.connections = ConnectionCounts(self.quotas, self.refusals)
        self.sources = SourceCounts(self.quotas, self.refusals)
        self._authorities: dict[str, list[Authorities]] = {}
        """By the file that names them, those of each door."""
        self._objections: dict[str, Callable[[Identity], str]] = {
            TOKEN: self._token_objection,
            JWT: lambda identity: self._jwt.objection(identity, environment.time_us()),
            CERTIFICATE: self._mapping_objection,
            UNIX: self._mapping_objection,
        }
        """By means: why an identity that was proven so no longer holds."""
        self.watchers: list[Callable[[], None]] = []
        """Called when the rules have changed: each door ends what they allow no longer."""

    def _make_rules(self, allow: tuple[str, ...]) -> Rules:
        # a file without tokens, as after the last was revoked, is not an open door
        return Rules(allow, names_matter=bool(self._tokens_path or self._jwt.files))

    @property
    def is_open(self) -> bool:
        """Whether everyone may do everything, because there is neither a rule nor somebody who has tokens."""
        return self.rules.is_open

    # -- who somebody is

    def identify(self, token: str, certified: Credentials = NO_CREDENTIALS) -> Identity:
        """The identity behind a token, or else behind what the connection proves. Raises `Unauthenticated`."""
        if token and self._jwt.takes(token):
            return self._jwt.identify(token, environment.time_us())
        if token:
            return self._tokens.identify(token, environment.time_us())
        return self._mapping.identify(certified)

    def redeem(self, ticket: str) -> Identity:
        """The identity behind a ticket, which counts once. Raises `Unauthenticated`."""
        identity = self.tickets.redeem(ticket)
        if why := self.objection(identity):
            raise Unauthenticated(why)
        return identity

    def objection(self, identity: Identity) -> str:
        """Why an identity no longer holds; empty if it does."""
        judge = self._objections.get(identity.means)
        return "" if judge is None else judge(identity)

    def _token_objection(self, identity: Identity) -> str:
        return self._tokens.objection(identity, environment.time_us())

    def _mapping_objection(self, identity: Identity) -> str:
        if 0 < identity.expires_us <= environment.time_us():
            return f"the {identity.means} {identity.proof!r} of {identity.name} has expired"
        return self._authority_objection(identity) or self._mapping.objection(identity)

    def _authority_objection(self, identity: Identity) -> str:
        """Why a certificate no longer counts: the authority that vouched for it was dropped."""
        file, authority = authority_of(identity)
        if all(one.trusts(authority) for one in self._authorities.get(file, ())):
            return ""
        return f"the authority of the {identity.means} {identity.proof!r} of {identity.name} is no longer in {file}"

    def expires_us(self, identity: Identity) -> int:
        """When an identity will expire, as far as is known now; 0 for never."""
        return self._tokens.expires_us(identity) if identity.means == TOKEN else identity.expires_us

    def follow(self, means: str, objection: Callable[[Identity], str]) -> None:
        """A door proves identities by means of its own, and says why one no longer holds."""
        self._objections[means] = objection

    def trust(self, authorities: Authorities | None) -> None:
        """A door trusts the certificates of these authorities. When one is dropped, its clients are disconnected."""
        if authorities is not None and authorities.ca_file:
            self._authorities.setdefault(authorities.ca_file, []).append(authorities)
            authorities.watch(self.proofs_changed)

    def proofs_changed(self) -> None:
        """Proofs were revoked or replaced: disconnect those whose identity no longer holds."""
        self.logins.check(self)

    def expire(self, now: float) -> None:
        """Disconnect those whose proof has expired; a chore of the node."""
        self.logins.expire(environment.time_us(), self)

    # -- what they may do

    def may_publish(self, name: str, topic: str) -> bool:
        """Whether a name may publish on a topic. Only nodes write below `reknit/`, whatever the rules say."""
        if is_reserved(topic) and name != ITSELF:
            return False
        return self.is_open or self.rules.may_topic(name, "publish", topic)

    def may_read(self, name: str, topic: str) -> bool:
        """Whether a name may read a topic."""
        return self.is_open or self.rules.may_topic(name, "subscribe", topic)

    def may_subscribe(self, name: str, wanted: Pattern) -> bool:
        """Whether a name may read all topics that match a pattern."""
        return self.rules.may(name, "subscribe", wanted)

    def readable(self, name: str) -> tuple[Pattern, ...] | None:
        """The topics that a name may read; None for all, also those of the node itself."""
        return None if self.rules.is_free(name) else self.rules.patterns(name, "subscribe")

    def may_be(self, name: str, source: Address) -> bool:
        """Whether events from an address may come from a name."""
        return self.rules.may_be(name, source)

    def is_admin(self, name: str) -> bool:
        """Whether a name may ask and change everything."""
        return self.rules.is_admin(name)

    def may_observe(self, name: str) -> bool:
        """Whether a name may see figures about all topics: status, ledger and metrics."""
        return self.is_admin(name) or self.rules.may_watch(name, EVERYTHING)

    # -- changes while the node runs

    def reloadables(self) -> dict[str, GateFile]:
        """What is read from files, by a name for the log."""
        found: dict[str, GateFile] = {}
        if self._tokens_path:
            found["the file of tokens"] = GateFile(lambda: [self._tokens_path], self._reload_tokens)
        if self._jwt.files or is_file(self._jwt_origin):
            found["the list of issuers"] = GateFile(self._issuer_files, self._reload_issuers)
        if is_file(self._origin):
            found["the list of rules"] = GateFile(lambda: [self._origin], self._reload_rules)
        return found

    def _issuer_files(self) -> list[str]:
        """The files of keys, and the file that names them unless it is read again with the rules."""
        is_alone = is_file(self._jwt_origin) and self._jwt_origin != self._origin
        return [*([self._jwt_origin] if is_alone else []), *self._jwt.files]

    def _reload_tokens(self) -> None:
        self._tokens = Tokens(read_tokens(self._tokens_path))
        self.proofs_changed()

    def _reload_issuers(self) -> None:
        self._jwt = self._read_issuers()
        self.proofs_changed()

    def _read_issuers(self) -> JwtVerifier:
        """The issuers as they are named now, with their keys. Raises `InvalidConfig`."""
        lines = reread(ISSUERS, self._jwt_origin) if is_file(self._jwt_origin) else self._jwt.lines
        if self._jwt.lines and not lines:  # perhaps the file is only being written
            why = "has no issuers any more: restart the node if you mean it"
            raise InvalidConfig(ISSUERS, self._jwt_origin, why)
        return JwtVerifier(lines)

    def _reload_rules(self) -> None:
        allow = reread(ALLOW, self._origin)
        if not allow:  # perhaps the file is only being written
            why = "has no rules any more, so that more people could do everything: restart the node if you mean it"
            raise InvalidConfig(ALLOW, self._origin, why)
        rules, issuers, mapping = self._make_rules(allow), self._jwt, self._mapping
        if self._jwt_origin == self._origin:
            issuers = self._read_issuers()
        if self._mapping_origin == self._origin:
            mapping = IdentityMapping(reread(MAPPING, self._origin), self._is_required)
        self.rules, self._jwt, self._mapping = rules, issuers, mapping
        self.proofs_changed()
        for watcher in self.watchers:
            watcher()


class GateFile:
    """Files that the gate reads again when they change."""

    def __init__(self, name_files: Callable[[], Sequence[str]], reload: Callable[[], None]) -> None:
        self._name_files = name_files
        self.reload = reload
        """Read it again, and end what is no longer allowed. Raises `InvalidConfig`; then everything stays."""

    @property
    def files(self) -> Sequence[str]:
        """The files. One may name others."""
        return self._name_files()
