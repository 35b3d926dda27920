"""Checks of dead letters: open ones survive retention, and redriven ones are published again."""

from __future__ import annotations

from collections.abc import Iterator

from reknit.lineage import lasting_source
from reknit.node.core.dead_letters import DeadLetters
from reknit.seqset import SeqSet
from reknit.testing.checks.promise import promise


@promise("A dead letter that nobody redrove or dropped survives retention.")
def open_dead_letters_survive(letters: DeadLetters, written: SeqSet) -> Iterator[str]:
    """`written` has the seqs of all dead letters that were ever durable."""
    held = letters.journal.held(letters.topic, letters.source)
    for start, stop in letters.letters.waiting(written).difference(held).ranges():
        yield f"dead letters [{start}, {stop}) wait, and are not in the journal any more"


@promise("A node counts the dead letters that wait.")
def waiting_dead_letters_are_counted(letters: DeadLetters) -> Iterator[str]:
    waiting = letters.letters.waiting(letters.published).count
    if letters.waiting.count != waiting:
        yield f"{waiting} dead letters wait, and the node counts {letters.waiting.count}"


@promise("A dead letter that was redriven is published again, once.")
def redriven_letters_are_published(letters: DeadLetters) -> Iterator[str]:
    published = letters.journal.ledger.published
    again = sum(
        seqs.count
        for (topic, source), seqs in published.items()
        if source == redrive_source(letters.node, topic, letters.journal.id)
    )
    redriven = letters.letters.redriven.count
    if again != redriven:
        yield f"{redriven} dead letters were redriven, and {again} events were published for them"


def redrive_source(node: str, topic: str, journal: str) -> bytes:
    """The source under which a node publishes redriven events on a topic."""
    return lasting_source(f"redrive\0{node}\0{topic}", journal)
