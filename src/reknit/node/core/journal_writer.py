"""Stages the machines' effects for the journal, and requests the commit that makes them durable."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import assert_never

from reknit.address import Address
from reknit.config import Config
from reknit.errors import JournalFull
from reknit.node.core.dead_letters import DeadLetters
from reknit.node.core.responses import Responses
from reknit.protocol.effects import Append, AppendRecord, DeadLetter, Mark
from reknit.protocol.machine import JOURNAL, Peer
from reknit.protocol.publish.inputs import RefusedBatch, StopIntake
from reknit.protocol.publish.intake import Intake
from reknit.protocol.rpc.open_requests import Respond
from reknit.records import Record
from reknit.store.journal import Journal

Staged = Append | AppendRecord | DeadLetter | Mark | RefusedBatch | Respond


class JournalWriter:
    """Writes for one core. `commit` is called with the number up to which everything is staged."""

    def __init__(
        self,
        *,
        journal: Journal,
        config: Config,
        commit: Callable[[int, bool], None],
        intake: Intake,
        responses: Responses,
        dead_letters: DeadLetters,
        is_awaited: Callable[[str], bool],
        may_be: Callable[[Peer, Address], bool],
    ) -> None:
        self._journal = journal
        self._config = config
        self._commit = commit
        self._intake = intake
        self._responses = responses
        self._dead_letters = dead_letters
        self._is_awaited = is_awaited
        self._may_be = may_be
        self._memory_topics = any(rule.durability == "memory" for rule in config.topics)
        self._staged_number = 0
        """The highest number that was staged."""
        self._is_dirty = False
        self._needs_sync = False
        self._requested_end = journal.end
        """The position up to which a commit was requested."""
        self._deferred: deque[Staged] = deque()

    @property
    def has_deferred(self) -> bool:
        """Whether effects wait for room in the journal."""
        return bool(self._deferred)

    def deferred_records(self) -> Iterator[Record]:
        """The records that wait for room in the journal, in order: the ledger does not have them yet."""
        for effect in self._deferred:
            if isinstance(effect, AppendRecord):
                yield effect.record

    @property
    def is_due(self) -> bool:
        """Whether anything was staged since the last commit was requested."""
        return self._is_dirty or self._journal.staged_end > self._requested_end

    def commit(self) -> None:
        """Request a commit of everything that was staged."""
        sync = self._needs_sync if self._is_dirty else self._config.journal.sync
        self._requested_end = self._journal.staged_end  # orders about dead letters are staged by themselves
        self._is_dirty = self._needs_sync = False
        self._commit(self._covered(), sync)

    def staged(self, number: int, sync: bool = True) -> None:
        """Something with this number was staged for the journal."""
        self._staged_number = max(self._staged_number, number)
        self._is_dirty = True
        self._needs_sync = self._needs_sync or (sync and self._config.journal.sync)

    def write_deferred(self) -> None:
        """There may be room again: stage the effects that were deferred."""
        while self._deferred:
            try:
                self._stage(self._deferred[0])
            except Exception:  # full, or reported when it was deferred: intake stays stopped
                return
            self._deferred.popleft()

    def write(self, effect: Staged, now: float) -> None:
        """Stage for the journal. An effect that does not fit now is deferred, in order: nothing is dropped."""
        if self._deferred:
            self._deferred.append(effect)
            return
        try:
            self._stage(effect)
        except JournalFull as error:
            self._deferred.append(effect)
            self._intake.receive(StopIntake(str(error)), JOURNAL, now)
        except Exception as error:  # never acknowledge what was not staged
            self._deferred.append(effect)
            self._intake.receive(StopIntake(f"internal error: {error!r}"), JOURNAL, now)
            raise

    def _stage(self, effect: Staged) -> None:
        match effect:
            case Append(number=number, data=data, heads=heads):
                self._journal.stage(data, heads)
                if heads[0].flags:  # such a batch comes alone
                    self._responses.staged(data, heads)
                sync = not self._memory_topics or any(self._is_durable(head.topic) for head in heads)
            case AppendRecord(number=number, record=record):
                self._journal.stage_record(record)
                sync = True
            case Mark(number=number):
                sync = True
            case DeadLetter():
                self._responses.dead_lettered(effect)
                if not self._dead_letters.stage(effect):
                    return
                number, sync = self._intake.next_number(), True
            case RefusedBatch(batch=refused, refusal=problem, attempts=attempts):
                self._dead_letters.stage_refused(
                    refused,
                    code=problem.code,
                    reason=str(problem.reason),
                    text=problem.text,
                    attempts=attempts,
                )
                number, sync = self._intake.next_number(), True
                self._responses.refused(effect, self._may_be)
            case Respond():
                response = self._responses.write(effect)
                self._journal.stage(bytes(response.data), [response.head])
                if not self._is_awaited(response.topic):
                    self._responses.unwanted(response)
                number, sync = self._intake.next_number(), True
                # A neighbour may bring it back: then it is known.
                self._intake.appended_here(number, {response.source: response.stop})
            case _:
                assert_never(effect)
        self.staged(number, sync)

    def _is_durable(self, topic: str) -> bool:
        return self._config.topic(topic).durability == "durable"

    def _covered(self) -> int:
        """The number up to which everything is staged. Several machines draw numbers: they are not staged in order."""
        waiting = [
            effect.number
            for effect in self._deferred
            if not isinstance(effect, DeadLetter | RefusedBatch | Respond)
        ]
        return min(self._staged_number, min(waiting) - 1) if waiting else self._staged_number
