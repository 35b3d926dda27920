"""Faults in publishing: what a node takes, what it acknowledges, and what a publisher repeats."""

from __future__ import annotations

from typing import Final

from reknit.testing.mutants.mutant import Mutant

INTAKE: Final = "reknit.protocol.publish.intake"
POSITIONS: Final = "reknit.protocol.publish.source_positions"
CONNECTIONS: Final = "reknit.protocol.publish.publisher_connections"
PUBLISHER: Final = "reknit.protocol.publish.publisher"

MUTANTS: Final = (
    Mutant(
        name="ack-before-sync",
        module=INTAKE,
        old="        self.effects.append(Append(number, data, heads, peer))",
        new="        self.effects.append(Append(number, data, heads, peer))\n"
        "        self.effects += [Send(peer, Ack(source, stop - 1)) for source, stop in stops.items()]",
        breaks="an event is durable before it is acknowledged",
    ),
    Mutant(
        name="duplicate-taken",
        module=INTAKE,
        old="            self.duplicates += head.count\n            self._acknowledge_again(head, peer)",
        new="            self._append(peer, bytes(data), [head], {head.source: head.stop})",
        breaks="a repeated event is stored once",
    ),
    Mutant(
        name="overlap-not-cut",
        module=INTAKE,
        old="batch = Batch(head, data).cut(expected, head.stop)",
        new="batch = Batch(head, data)",
        breaks="a repeated event is stored once, also inside a batch with new ones",
    ),
    Mutant(
        name="overlap-dropped",
        module=INTAKE,
        old="elif head.stop <= expected:",
        new="elif head.first < expected:",
        breaks="the new events of a batch that repeats others are taken",
    ),
    Mutant(
        name="overlap-loses-an-event",
        module=INTAKE,
        old="batch = Batch(head, data).cut(expected, head.stop)",
        new="batch = Batch(head, data).cut(min(expected + 1, head.stop - 1), head.stop)",
        breaks="every new event of a batch that repeats others is taken",
    ),
    Mutant(
        name="superseded-source-speaks",
        module=CONNECTIONS,
        old="return self._claims.get(source, number) == number",
        new="return True",
        breaks="only the newest connection publishes as a lasting source",
    ),
    Mutant(
        name="superseded-source-continues",
        module=INTAKE,
        old="and (not claims or claims.get(source, connection) == connection)",
        new="",
        breaks="only the newest connection publishes as a lasting source",
    ),
    Mutant(
        name="gap-not-asked",
        module=INTAKE,
        old="            self._send(peer, Expect(head.source, expected))",
        new="            pass",
        breaks="a node asks for events that it misses",
    ),
    Mutant(
        name="repeat-never-acknowledged",
        module=INTAKE,
        old="            self._unacked.append((self._number, peer, {head.source: head.stop}))",
        new="            pass",
        breaks="a publisher that repeats events on a new connection is told when they are durable",
    ),
    Mutant(
        name="go-never-sent",
        module=INTAKE,
        old='                    self.stopped = ""\n                    self._go()',
        new='                    self.stopped = ""',
        breaks="publishers that were told to wait are told to continue",
    ),
    Mutant(
        name="declare-answered-early",
        module=INTAKE,
        old="case Claim.GRANTED if self._positions.is_settled(source):",
        new="case Claim.GRANTED if True:",
        breaks="a restarted publisher continues after everything that was taken from it",
    ),
    Mutant(
        name="new-source-begins-late",
        module=POSITIONS,
        old="            self._begins.setdefault(source, first)",
        new="            pass",
        breaks="a source whose first events were turned away begins with these",
    ),
    Mutant(
        name="ack-one-too-many",
        module=POSITIONS,
        old="max(self._durable.get(source, 0), stop - 1)",
        new="max(self._durable.get(source, 0), stop)",
        breaks="an acknowledgement covers no event that is not stored",
    ),
    Mutant(
        name="ack-to-nobody",
        module=INTAKE,
        old="for (peer, source), seq in acks.items() if peer in self._connections",
        new="for (peer, source), seq in acks.items() if peer not in self._connections",
        breaks="durable events are acknowledged to their publisher",
    ),
    Mutant(
        name="connection-never-forgotten",
        module=CONNECTIONS,
        old="self._numbers.pop(peer, 0)",
        new="self._numbers.get(peer, 0)",
        breaks="a node forgets a connection that is gone",
    ),
    Mutant(
        name="resend-skips-the-first",
        module=PUBLISHER,
        old="for batch in self.unacked if batch.stop > seq]",
        new="for batch in self.unacked if batch.first > seq]",
        breaks="a publisher repeats everything that is not acknowledged",
    ),
    Mutant(
        name="confirmed-one-too-many",
        module=PUBLISHER,
        old="self.unacked[0].stop <= seq + 1",
        new="self.unacked[0].stop <= seq + 2",
        breaks="only acknowledged events are confirmed to the application",
    ),
    Mutant(
        name="go-resends-nothing",
        module=PUBLISHER,
        old="            case Go():\n                self.state = state\n"
        "                self._resend(self._first_unacked())",
        new="            case Go():\n                self.state = state",
        breaks="events that were turned away are sent again",
    ),
)
