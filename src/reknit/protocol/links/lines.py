"""The connections to other nodes: to whom each of them leads, and which of several to the same node counts."""

from __future__ import annotations

from dataclasses import dataclass, field

from reknit.protocol.machine import Peer
from reknit.wire.announced import Announced
from reknit.wire.links import Carry, Forward, Link


@dataclass(slots=True, eq=False)
class Line:
    """One connection to another node. `hello` is the other node's introduction, once it has arrived."""

    id: Peer
    cost: int
    is_ours: bool
    """Whether this node opened it."""
    hello: Link | None = None
    is_dismissed: bool = False
    """Whether it is being closed: what the other node sent before it noticed is ignored."""
    has_forwards: bool = False
    """Whether it brought events whose outcomes the other node waits for."""
    announced: Announced[Forward | Carry] = field(default_factory=Announced)

    @property
    def name(self) -> str:
        """The other node's name, once it is known."""
        return self.hello.node if self.hello is not None else ""


class Lines:
    """All connections of one node to others. The first one to a neighbour counts; the others are spares."""

    def __init__(self) -> None:
        self._by_id: dict[Peer, Line] = {}
        self._by_name: dict[str, list[Line]] = {}
        self.were_there = False
        """Whether there ever was one."""

    def __contains__(self, id: object) -> bool:
        return id in self._by_id

    def get(self, id: Peer) -> Line | None:
        """The line with this id."""
        return self._by_id.get(id)

    def first(self, name: str) -> Line | None:
        """The line that counts to a neighbour, if it is connected."""
        several = self._by_name.get(name)
        return several[0] if several else None

    def all_to(self, name: str) -> list[Line]:
        """All lines to a neighbour."""
        return list(self._by_name.get(name, ()))

    def neighbours(self) -> set[str]:
        """The nodes that are connected."""
        return set(self._by_name)

    def open(self, id: Peer, cost: int, is_ours: bool) -> Line:
        """A line whose other node is not known yet."""
        self.were_there = True
        line = self._by_id[id] = Line(id, cost, is_ours)
        return line

    def introduced(self, line: Line, hello: Link) -> bool:
        """The other node introduced itself; returns whether this is the first line to it."""
        assert line.hello is None, "a node introduces itself once on a line"
        line.hello = hello
        several = self._by_name.setdefault(hello.node, [])
        several.append(line)
        return len(several) == 1

    def lose(self, id: Peer) -> None:
        """A line is gone."""
        line = self._by_id.pop(id, None)
        if line is not None:
            self.retire(line)

    def retire(self, line: Line) -> None:
        """A line is no longer one of those to its neighbour: it is gone, or being closed."""
        several = self._by_name.get(line.name, [])
        if line in several:
            several.remove(line)
        if not several:
            self._by_name.pop(line.name, None)
