"""Admin requests about links: list them, add one, remove one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from reknit.node.links.checks import parse_link
from reknit.node.links.links import Links


class LinkAdmin:
    """Answers for one node. `unsettled` says how many events a neighbour has and did not settle."""

    def __init__(self, links: Links, *, cost: int, unsettled: Callable[[str], int]) -> None:
        self._links = links
        self._cost = cost
        self._unsettled = unsettled

    def rows(self) -> list[dict[str, Any]]:
        """Every link and every node that is known, for people."""
        links = self._links
        machine, ways = links.machine, links.routes.reachable()
        linked = machine.lines.neighbours()
        rows: list[dict[str, Any]] = [
            {
                "node": name,
                "state": "linked" if name in linked else ("reached" if name in ways else "away"),
                "cost": ways[name].cost if name in ways else None,
                "via": ways[name].first if name in ways else "",
                "is_edge": known.state.is_edge,
                "url": links.url(name),
                "subscriptions": len(known.interests),
                "unsettled": self._unsettled(name),
                "sent": machine.outgoing[name].events if name in machine.outgoing else 0,
                "received": machine.incoming[name].events if name in machine.incoming else 0,
                "problem": "",
            }
            for name, known in sorted(links.routes.known.items())
            if name != links.routes.name
        ]
        rows += [
            {"node": "", "state": "waiting", "cost": one.cost, "via": "", "is_edge": False, "url": one.to}
            | {"subscriptions": 0, "unsettled": 0, "sent": 0, "received": 0, "problem": one.problem}
            for one in links.outgoing
            if not links.is_linked(one)
        ]
        return rows

    def ask_add(self, args: dict[str, Any]) -> list[dict[str, Any]]:
        """Add a link, for an admin request; returns all links. Raises `InvalidConfig`, `Refused`."""
        self._links.outgoing.add(*parse_link(str(args["to"]), self._cost))
        return self.rows()

    def ask_remove(self, args: dict[str, Any]) -> list[dict[str, Any]]:
        """Remove a link, for an admin request; returns the links that are left. Raises `InvalidConfig`, `Refused`."""
        self._links.outgoing.remove(parse_link(str(args["to"]))[0])
        return self.rows()
