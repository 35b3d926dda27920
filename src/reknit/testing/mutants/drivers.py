"""Faults in what runs the machines: the client, the node's commits and connections, and the gateways."""

from __future__ import annotations

from typing import Final

from reknit.testing.mutants.mutant import Mutant

COMMITTER: Final = "reknit.node.committer"
DISPOSITIONS: Final = "reknit.gateway.amqp.links.dispositions"

MUTANTS: Final = (
    Mutant(
        name="client-confirms-too-early",
        module="reknit.connection.publish_driver",
        old="        while waiting and waiting[0][0] <= stop:",
        new="        while waiting and waiting[0][0] <= stop + 1:",
        breaks="`publish` returns when the event is durable",
        simulation="fabric",
    ),
    Mutant(
        name="client-keeps-its-outcomes",
        module="reknit.client.subscribe.settlement",
        old="        self._schedule(can_wait=outcome is Outcome.ACCEPTED)",
        new="        pass",
        breaks="an outcome of the application reaches the node",
        simulation="fabric",
    ),
    Mutant(
        name="failed-commit-is-not-retried",
        module=COMMITTER,
        old="        self._retrying = self._loop.call_later(RETRY_S, self._retry)",
        new="        pass",
        breaks="a node whose disk was full takes events again",
        simulation="fabric",
    ),
    Mutant(
        name="commit-request-is-lost",
        module=COMMITTER,
        old="            wanted, self._wanted, self._is_held = self._wanted, None, False\n",
        new="            wanted, self._wanted, self._is_held = None, None, False\n",
        breaks="what is staged during a commit is committed next",
        simulation="fabric",
    ),
    Mutant(
        name="lost-connection-is-not-noticed",
        module="reknit.node.node",
        old="                self.core.left(peer.id, self._now(), is_abrupt=not peer.is_leaving)\n",
        new="                pass\n",
        breaks="the events of a subscriber that is gone are delivered again",
        simulation="fabric",
    ),
    Mutant(
        name="post-is-answered-before-the-sync",
        module="reknit.gateway.http.publishers",
        old="            self.driver.wait([stored for _, _, _, stored in part])",
        new="            for _, _, _, stored in part:\n                stored.set_result(None)",
        breaks="a POST is answered when its event is durable",
        simulation="fabric",
    ),
    Mutant(
        name="deleted-route-carries-on",
        module="reknit.gateway.http.kn.router",
        old="                changed = self.routes.remove(from_topic, id) or changed\n",
        new="",
        breaks="a tunnel carries the events of a routed topic until its route is deleted",
        simulation="fabric",
    ),
    Mutant(
        name="repeated-post-is-stored-twice",
        module="reknit.gateway.http.kn.notify",
        old="            return newest[1]\n",
        new="            pass\n",
        breaks="an event that is posted again with its id is stored once",
        simulation="fabric",
    ),
    Mutant(
        name="expired-events-are-replayed",
        module="reknit.gateway.http.replay",
        old="    return bool(head.ttl_ms) and",
        new="    return False and",
        breaks="a tunnel brings no event after its time to live",
        simulation="fabric",
    ),
    Mutant(
        name="amqp-release-accepts",
        module=DISPOSITIONS,
        old="        return RELEASED\n    if state == deliveries.REJECTED:",
        new="        return ACCEPTED\n    if state == deliveries.REJECTED:",
        breaks="a message that an AMQP receiver releases goes to another one",
        simulation="fabric",
    ),
)
