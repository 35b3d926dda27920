"""The audit of a node: every door and every order tells it what happened, and the node writes it down."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from reknit import environment
from reknit.audit import AuditEntry, AuditKind
from reknit.config import SecuritySettings
from reknit.outcome import Code
from reknit.trust.identities import NOBODY, Identity

NODE: Final = "node"
"""The node itself, as the audit names it."""


def _ignore() -> None:
    """Nobody writes yet."""


class Audit:
    """Takes what is said to it until the node writes it. Where it is off, everything said to it is ignored.

    Only identities, hosts, names and counts may be said here: no token, no password, no payload.

    >>> audit = Audit(SecuritySettings(audit="on"), is_open=True)
    >>> audit.login(Identity("ann"), "tcp", "10.0.0.7:4711")
    >>> [(entry.who, entry.address) for entry in audit.take()]
    [('ann', '10.0.0.7')]
    """

    def __init__(self, settings: SecuritySettings, is_open: bool) -> None:
        self.is_on = settings.audit == "on" or (settings.audit == "auto" and not is_open)
        self.entries: list[AuditEntry] = []
        """What is taken next."""
        self._wake: Callable[[], None] = _ignore

    def written_by(self, wake: Callable[[], None]) -> None:
        """`wake` is called when there are entries to take."""
        self._wake = wake

    def take(self) -> list[AuditEntry]:
        """The entries since the last call."""
        entries, self.entries = self.entries, []
        return entries

    # -- what happened

    def login(self, who: Identity | None, door: str, address: str, text: str = "") -> None:
        """Somebody came in; None if what they presented proved nothing, and `text` says why."""
        code = (Code.OK if who is not None else Code.UNAUTHENTICATED).name
        name, means, proof = (who or NOBODY)[:3]
        details = {"means": means, "proof": proof} if means else {}
        more = {"code": code, "text": text, "details": details}
        self._note("login", "login", name, door=door, address=host_of(address), **more)

    def refused(
        self, who: str, reason: str, text: str, events: int = 0, door: str = "", address: str = ""
    ) -> None:
        """Somebody was refused something: events of theirs, or a request."""
        code, host = Code.PERMISSION_DENIED.name, host_of(address)
        self._note("refusal", reason, who, door=door, address=host, code=code, text=text, events=events)

    def ordered(
        self,
        who: str,
        order: str,
        details: dict[str, str],
        *,
        door: str = "tcp",
        address: str = "",
        code: Code = Code.OK,
        text: str = "",
        events: int = 0,
    ) -> None:
        """An admin gave an order, which was carried out or failed with a code."""
        more = {"code": code.name, "text": text, "events": events, "details": details}
        self._note("order", order, who, door=door, address=host_of(address), **more)

    def reloaded(self, what: str, files: str, why: str = "") -> None:
        """Rules, tokens, certificates or authorities were read again; `why` they stay as they were, if they do."""
        code = (Code.INVALID_ARGUMENT if why else Code.OK).name
        self._note("change", "reload", NODE, code=code, text=why, details={"what": what, "files": files})

    def _note(self, kind: AuditKind, action: str, who: str, **more: Any) -> None:
        if not self.is_on:
            return
        is_first = not self.entries
        entry = AuditEntry(kind=kind, action=action, who=who, time_us=environment.time_us(), **more)
        self.entries.append(entry)
        if is_first:
            self._wake()


def host_of(address: str) -> str:
    """The host of an address, so that many connections from one host are told as one.

    >>> host_of("10.0.0.7:4711"), host_of("[::1]:4711"), host_of("a program")
    ('10.0.0.7', '::1', 'a program')
    """
    host, colon, port = address.rpartition(":")
    return host.strip("[]") if colon and port.isdigit() else address
