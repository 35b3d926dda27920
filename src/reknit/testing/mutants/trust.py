"""Faults in who may do what, and how much of it: rules, proofs of identity, and quotas."""

from __future__ import annotations

from typing import Final

from reknit.testing.mutants.mutant import Mutant

RATES: Final = "reknit.protocol.publish.rate_quotas"
QUOTAS: Final = "reknit.node.core.core_quotas"
COUNTS: Final = "reknit.trust.connection_counts"

MUTANTS: Final = (
    Mutant(
        name="published-events-are-not-counted",
        module=RATES,
        old="                self.rates.charge(who, events, head.length * events // head.count, now)",
        new="                pass",
        breaks="an identity publishes no more events a second than its quota allows",
        simulation="fabric",
    ),
    Mutant(
        name="quota-never-lets-go-on",
        module=RATES,
        old="                ready.append(peer)\n",
        new="",
        breaks="a publisher that waits for its quota is told when it may go on",
        simulation="fabric",
    ),
    Mutant(
        name="connections-are-not-counted",
        module=COUNTS,
        old="        self._counts[who] = count + 1\n",
        new="",
        breaks="an identity has no more connections than its quota allows",
        simulation="fabric",
    ),
    Mutant(
        name="connection-is-not-given-back",
        module="reknit.node.peers.reception",
        old="            self._connections.leave(peer.quota_name)\n",
        new="            pass\n",
        breaks="an identity whose connections are closed may connect again",
        simulation="fabric",
    ),
    Mutant(
        name="durable-names-are-not-counted",
        module=QUOTAS,
        old="        return sum(one.owner in owners for name, one in accounts if not name.startswith(ANYCAST))",
        new="        return 0",
        breaks="an identity has no more durable subscribers than its quota allows",
        simulation="fabric",
    ),
    Mutant(
        name="known-name-counts-as-new",
        module=QUOTAS,
        old="bool(name) and name not in self._ledger.accounts",
        new="bool(name)",
        breaks="a durable subscriber whose identity is at its quota can come back",
        simulation="fabric",
    ),
    Mutant(
        name="foreign-topic-is-read",
        module="reknit.node.peers.permissions",
        old="        if not self._may_read(peer, pattern):\n",
        new="        if False:\n",
        breaks="an identity reads only what a rule allows",
        simulation="fabric",
    ),
    Mutant(
        name="gateway-does-not-ask-the-gate",
        module="reknit.gateway.http.kn.notify",
        old="        if not self._access.may_publish(user, topic):\n",
        new="        if False:\n",
        breaks="an identity publishes only what a rule allows, at every door",
        simulation="fabric",
    ),
    Mutant(
        name="ticket-counts-twice",
        module="reknit.trust.tickets",
        old="self._tickets.pop(digest_of(ticket[: 4 * SECRET_BYTES]), None)",
        new="self._tickets.get(digest_of(ticket[: 4 * SECRET_BYTES]))",
        breaks="a ticket opens one stream",
        simulation="fabric",
    ),
    Mutant(
        name="revoked-token-stays-connected",
        module="reknit.trust.gate",
        old="        self._tokens = Tokens(read_tokens(self._tokens_path))\n        self.proofs_changed()",
        new="        self._tokens = Tokens(read_tokens(self._tokens_path))",
        breaks="what a token opened ends when it is revoked",
        simulation="fabric",
    ),
    Mutant(
        name="revoked-token-still-opens",
        module="reknit.trust.gate",
        old="        self._tokens = Tokens(read_tokens(self._tokens_path))\n        self.proofs_changed()",
        new="        Tokens(read_tokens(self._tokens_path))\n        self.proofs_changed()",
        breaks="a token that is revoked opens nothing",
        simulation="fabric",
    ),
)
