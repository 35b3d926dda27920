"""Starts a fabric: nodes, then subscribers, and publishers once every node knows all subscribers."""

from __future__ import annotations

import time
from collections.abc import Callable

from reknit.client.blocking.session import connect_sync
from reknit.errors import LocalError, NotConnected
from reknit.testing.chaos.fabric import ALL, Fabric

READY_S = 120.0


def start(fabric: Fabric) -> None:
    """Start all processes. Raises `LocalError` if they do not find each other."""
    for node in fabric.nodes.values():
        node.start()
    if "bridge" not in fabric.without:
        with connect_sync(fabric.nodes["n1"].url, wait_s=30) as session:
            session.ask("route_add", **{"in": "here", "out": fabric.links["n1-outpost"].url, "pattern": ALL})
    publishing = {publisher.name for publisher in fabric.publishers} | {"order"}
    for name, client in fabric.clients.items():
        if name not in publishing:
            client.start()
    wait_until(lambda: not missing_subscribers(fabric), "every subscriber is known to every node")
    for name, client in fabric.clients.items():
        if name in publishing:
            client.start()


def wait_until(condition: Callable[[], bool], what: str, patience_s: float = READY_S) -> None:
    """Wait for a condition. Raises `LocalError`."""
    deadline = time.monotonic() + patience_s
    while not condition():
        if time.monotonic() > deadline:
            raise LocalError(f"the campaign cannot begin: waited {patience_s:.0f} s until {what}")
        time.sleep(0.2)


def missing_subscribers(fabric: Fabric) -> set[tuple[str, str]]:
    """Durable subscribers that their nodes do not know yet, and linked nodes whose subscriptions others don't know."""
    missing = {(one.node, one.ledger_name) for one in fabric.subscribers if one.ledger_name}
    linked = [name for name in fabric.nodes if name not in ("relay", "outpost")]
    home = {one.node for one in fabric.subscribers}.intersection(linked)
    for name, node in fabric.nodes.items():
        try:
            with connect_sync(node.url, wait_s=5) as session:
                missing -= {(name, str(row["name"])) for row in session.status()["subscribers"]}
                known = {str(row["node"]) for row in session.ask("links") if row["subscriptions"]}
        except NotConnected:
            continue
        if name in linked:
            missing |= {(name, other) for other in home - known - {name}}
    return missing
