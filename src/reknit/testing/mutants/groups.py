"""Faults in groups: windows, acks, requests, views, and the agreement on what a departed sender left."""

from __future__ import annotations

from typing import Final

from reknit.testing.mutants.mutant import Mutant

ROOM: Final = "reknit.protocol.multicast"
SENDER: Final = f"{ROOM}.sender"
MEMBERSHIP: Final = f"{ROOM}.membership"
AGREEMENT: Final = f"{ROOM}.survivor_agreement"
DEPARTURES: Final = f"{ROOM}.departures"
WINDOW: Final = f"{ROOM}.window"

MUTANTS: Final = (
    Mutant(
        name="group-ack-for-what-came",
        module=f"{ROOM}.pending_ack",
        old="        self.sent, self._sent_bytes, self.due_at = acked, bytes_acked, None",
        new="        self.sent, self._sent_bytes, self.due_at = acked + 1, bytes_acked, None",
        breaks="senders hear of everything that a member's application has",
        simulation="group",
    ),
    Mutant(
        name="group-minimum-ignores-one",
        module=f"{ROOM}.ack_table",
        old="        return all(ack >= seq for ack in self._acks.values())",
        new="        return any(ack >= seq for ack in self._acks.values())",
        breaks="a sender announces its last event until every member has it",
        simulation="group",
    ),
    Mutant(
        name="group-ack-table-keeps-leavers",
        module=SENDER,
        old="            box.acks.leave(member)\n",
        new="",
        breaks="nobody waits for the acks of a member that is gone",
        simulation="group",
    ),
    Mutant(
        name="group-start-is-said-once",
        module=SENDER,
        old="        self._starting[member] = now + settings.repeat_s\n",
        new="        self._starting.pop(member, None)\n",
        breaks="a joiner learns where to start, whatever datagrams are lost",
        simulation="group",
    ),
    Mutant(
        name="group-tail-is-not-announced",
        module=SENDER,
        old="        self._quiet_at = now + self._quiet_s\n\n    def close",
        new="        self._quiet_at = NEVER\n\n    def close",
        breaks="the last events of a sender are recovered though none follows",
        simulation="group",
    ),
    Mutant(
        name="group-forgets-what-others-lack",
        module=WINDOW,
        old="        seq = min(seq, self.acked)\n        if seq > self.forgotten:",
        new="        seq = self.acked\n        if seq > self.forgotten:",
        breaks="events are held until every member has them",
        simulation="group",
    ),
    Mutant(
        name="group-gap-is-asked-once",
        module=f"{ROOM}.gap_requests",
        old="        self.due_at = min(self.due_at, now + cool_s)",
        new="        self.due_at = None",
        breaks="a gap is requested until it is filled",
        simulation="group",
    ),
    Mutant(
        name="group-agreement-without-all",
        module=AGREEMENT,
        old="len(self._reports) == len(self._survivors)",
        new="len(self._reports) >= 1",
        breaks="all survivors of a sender deliver the same events",
        simulation="group",
    ),
    Mutant(
        name="group-losses-are-silent",
        module=f"{ROOM}.reception",
        old="                self.lose(LostEvents(receiver.source, start, stop))",
        new="                pass",
        breaks="what nobody has is reported as lost",
        simulation="group",
    ),
    Mutant(
        name="group-departed-senders-are-forgotten",
        module=DEPARTURES,
        old="            self.senders.add(receiver.source, receiver.window.delivered, departure.stamp)\n",
        new="",
        breaks="members that were apart learn how far the others got with senders that are gone",
        simulation="group",
    ),
    Mutant(
        name="group-silence-is-not-confirmed",
        module=f"{ROOM}.suspicion",
        old="        return {member for member, at in self._since.items() if now - at >= self._settings.confirm_s}",
        new="        return set()",
        breaks="a member that crashed leaves the view",
        simulation="group",
    ),
    Mutant(
        name="group-older-view-wins",
        module=MEMBERSHIP,
        old="(self.view is None or view.key > self.view.key)",
        new="(self.view is None or view.key != self.view.key)",
        breaks="of two views the later one wins",
        simulation="group",
    ),
    Mutant(
        name="group-divided-halves-stay-apart",
        module=MEMBERSHIP,
        old="            self._coordination.ask_merge(peer, now)\n",
        new="",
        breaks="a divided group merges",
        simulation="group",
    ),
)
