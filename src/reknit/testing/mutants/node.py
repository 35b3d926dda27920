"""Faults in a node's core: retention, the journal's writer, dead letters, redelivery and starts."""

from __future__ import annotations

from typing import Final

from reknit.testing.mutants.mutant import Mutant

CORE: Final = "reknit.node.core.core"
WRITER: Final = "reknit.node.core.journal_writer"
REDELIVERY: Final = "reknit.node.core.redelivery"
LETTERS: Final = "reknit.node.core.dead_letters"
ADMIN: Final = "reknit.node.core.dead_letter_admin"
RETENTION: Final = "reknit.node.core.retention"
TAIL: Final = "reknit.node.core.journal_tail"
START: Final = "reknit.node.core.start_position"

MUTANTS: Final = (
    Mutant(
        name="dead-letter-floor-forgotten",
        module=RETENTION,
        old="(self._dead_letters.floor(), self._scheduling.floor())",
        new="(self._scheduling.floor(),)",
        breaks="dead letters that nobody handled survive retention",
    ),
    Mutant(
        name="subscriber-floor-forgotten",
        module=RETENTION,
        old="            floors += [account.floor for account in self._journal.ledger.accounts.values()]",
        new="            pass",
        breaks="retention spares events that a durable subscriber is owed",
    ),
    Mutant(
        name="retention-before-the-commit",
        module=RETENTION,
        old="        if self._waiting is None or self._waiting[0] > number:",
        new="        if self._waiting is None:",
        breaks="what retention removes is owed to nobody, also after a crash",
    ),
    Mutant(
        name="deferred-outcomes-forgotten",
        module=WRITER,
        old="            if isinstance(effect, AppendRecord):\n                yield effect.record",
        new="            if isinstance(effect, AppendRecord):\n                yield from ()",
        breaks="an outcome counts while it waits for room in the journal",
    ),
    Mutant(
        name="sources-forgotten-at-start",
        module=CORE,
        old="for (_, source), seqs in published.items() if seqs}",
        new="for (_, source), seqs in published.items() if not seqs}",
        breaks="a node that restarts knows which events it has",
    ),
    Mutant(
        name="durable-but-not-dispatched",
        module=TAIL,
        old="        while self.end < end:",
        new="        if self.end < end:",
        breaks="everything that a commit covers is dispatched",
    ),
    Mutant(
        name="intake-never-resumes",
        module=CORE,
        old="            self.intake.receive(ResumeIntake(), JOURNAL, now)",
        new="            pass",
        breaks="a node that was full takes events again",
    ),
    Mutant(
        name="deferred-effect-dropped",
        module=WRITER,
        old="        except JournalFull as error:\n            self._deferred.append(effect)",
        new="        except JournalFull as error:",
        breaks="what does not fit into the journal now is written later",
    ),
    Mutant(
        name="deferred-effect-overtaken",
        module=WRITER,
        old="            self._deferred.append(effect)\n            return",
        new="            pass",
        breaks="what waits for room in the journal keeps its order",
    ),
    Mutant(
        name="deferred-effect-written-twice",
        module=WRITER,
        old="            self._deferred.popleft()",
        new="            if len(self._deferred) > 1 or self._is_dirty is None:\n"
        "                self._deferred.popleft()\n"
        "            else:\n"
        "                self._stage(self._deferred.popleft())",
        breaks="what waits for room in the journal is written once",
    ),
    Mutant(
        name="deferred-effect-promised",
        module=WRITER,
        old="return min(self._staged_number, min(waiting) - 1) if waiting else self._staged_number",
        new="return self._staged_number",
        breaks="nothing is acknowledged that still waits for room in the journal",
    ),
    Mutant(
        name="removed-events-not-reported",
        module=REDELIVERY,
        old="        if missing or overdue:",
        new="        if overdue:",
        breaks="events that were removed before their redelivery are reported as lost",
    ),
    Mutant(
        name="neighbouring-effects-dropped",
        module=REDELIVERY,
        old="        self._dispatch.put_back_effects(later)",
        new="        del later",
        breaks="an effect is performed also if the one before it took another way",
    ),
    Mutant(
        name="dead-letter-number-repeated",
        module=LETTERS,
        old="self._next_seq = journal.sources(self.topic).get(self.source, 0) + 1",
        new="self._next_seq = journal.sources(self.topic).get(self.source, 1)",
        breaks="a dead letter has a seq of its own",
    ),
    Mutant(
        name="dead-letter-of-a-removed-event-dropped",
        module=LETTERS,
        old="        for start, stop in found.missing(letter.start, letter.stop):",
        new="        for start, stop in found.missing(letter.start, letter.stop)[:0]:",
        breaks="an event that retention removed has a dead letter, too",
    ),
    Mutant(
        name="dead-letter-of-the-neighbour",
        module=LETTERS,
        old='            payload = payloads[index] if keeps else b""',
        new='            payload = payloads[max(index - 1, 0)] if keeps else b""',
        breaks="a dead letter has the payload of its event",
    ),
    Mutant(
        name="dead-letter-floor-too-high",
        module=LETTERS,
        old="        return found[0].position if found else None",
        new="        return found[0].position + found[0].head.length if found else None",
        breaks="dead letters that nobody handled survive retention",
    ),
    Mutant(
        name="dropped-letter-waits",
        module=LETTERS,
        old="        self.waiting.went(ranges)",
        new="        pass",
        breaks="a dead letter that was dropped does not count any more",
    ),
    Mutant(
        name="redriven-event-lost",
        module=ADMIN,
        old="            letters.journal.stage(bytes(batch.data), [batch.head])",
        new="            pass",
        breaks="a dead letter that is redriven is published again",
    ),
    Mutant(
        name="subscription-begins-late",
        module=START,
        old="        since[series] = seqs.last + 1",
        new="        since[series] = seqs.last + 2",
        breaks="a subscriber is owed every event that is published after its subscription was confirmed",
    ),
    Mutant(
        name="search-outlives-its-connection",
        module="reknit.node.core.openings",
        old="        self._searches.pop(peer, None)",
        new="        pass",
        breaks="a node forgets a subscription whose connection is gone, also while it looks for its start",
    ),
    Mutant(
        name="search-does-not-wait-for-the-journal",
        module="reknit.node.core.start_position",
        old="            yield WAIT  # events",
        new="            break  # events",
        breaks="a subscription begins behind the events that its position covers, also those on their way to the disk",
    ),
    Mutant(
        name="second-part-of-a-survey-never-sent",
        module="reknit.node.core.survey_walks",
        old="        if not part.is_last:\n            self._walks.setdefault",
        new="        if part.is_last:\n            self._walks.setdefault",
        breaks="a survey is answered to its end",
        simulation="fabric",
    ),
)
