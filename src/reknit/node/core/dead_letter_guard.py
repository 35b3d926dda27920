"""Lets publishers wait whose events fill the dead-letter store; others go on.

    a topic at its `dead_letters_max`        its publishers wait
    an identity at its quota `dead_letters`  its publishers wait
    the store at a limit of the node         publishers on topics with at least a fair share of it wait: the limit
                                             divided by the number of topics that have dead letters
    the store at twice that                  everybody waits

The last is for many topics, each of which has less than its share. Until then the store may exceed the limit: an event
that ended undelivered is never lost for want of room.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from reknit.config import Config
from reknit.config.quotas import Quotas
from reknit.node.core.dead_letters import DeadLetters
from reknit.private_topics import public_topic
from reknit.protocol.machine import JOURNAL, Peer
from reknit.protocol.publish.inputs import LettersFull, StopIntake
from reknit.protocol.publish.intake import Intake

ADVICE: Final = "redrive or drop some (reknit dead-letters)"


class DeadLetterGuard:
    """Tells the intake who has to wait. `who` names the identity of a peer."""

    def __init__(
        self, config: Config, letters: DeadLetters, intake: Intake, who: Callable[[Peer], str]
    ) -> None:
        self._config = config
        self._letters = letters
        self._intake = intake
        self._who = who
        self._quotas = Quotas(config.security.quotas)
        self._limits_owners = self._quotas.limits("dead_letters")
        self._limits_topics = any(rule.dead_letters_max for rule in config.topics)
        self._version = -1
        self.topics: dict[str, str] = {}
        """The topics whose publishers wait, and why."""
        self.owners: dict[str, str] = {}
        """The identities whose publishers wait, and why."""

    def judge(self, now: float) -> None:
        """Dead letters may have come or gone: tell the intake if others have to wait than before."""
        version = self._letters.waiting.version
        if version == self._version:
            return
        self._version = version
        if self._letters.is_full and not self._intake.is_full:
            self._intake.receive(StopIntake(self._letters.full_text), JOURNAL, now)
        before = {*self.topics, *self.owners}
        self.topics, self.owners = self._full_topics(), self._full_owners()
        after = {*self.topics, *self.owners}
        if after != before:
            refuses = self._refuses if after else None
            self._intake.receive(LettersFull(refuses, is_less=bool(before - after)), JOURNAL, now)

    def _refuses(self, peer: Peer, topic: str) -> str:
        """Why events of a peer on a topic have to wait; empty if they need not."""
        return self.topics.get(topic) or (self.owners.get(self._who(peer), "") if self.owners else "")

    def _full_topics(self) -> dict[str, str]:
        letters = self._letters
        waiting, shares = letters.waiting, letters.waiting.shares.topics
        full: dict[str, str] = {}
        if letters.stops_intake and (problem := waiting.problem):
            parts = len(shares)
            full = {topic: problem for topic, one in shares.items() if waiting.fills(one, parts)}
        if self._limits_topics:
            for topic, share in shares.items():
                limit = self._config.topic(public_topic(topic)).dead_letters_max
                if limit and share.count >= limit:
                    full[topic] = (
                        f"{share.count:,} dead letters of {topic!r} wait (topics dead_letters_max): {ADVICE}"
                    )
        return full

    def _full_owners(self) -> dict[str, str]:
        if not self._limits_owners:
            return {}
        shares = self._letters.waiting.shares.owners.items()
        return {
            owner: f"{share.count:,} dead letters of {owner} wait (security.quotas): {ADVICE}"
            for owner, share in shares
            if 0 < self._quotas.of(owner).dead_letters <= share.count
        }

    def status(self) -> Mapping[str, str]:
        """By topic or identity: why its publishers wait."""
        return {**self.topics, **self.owners}
