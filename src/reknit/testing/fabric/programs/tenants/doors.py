"""Tenants at the gateways: what they may do works there, and everything else is refused with the reason."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlencode

import msgspec

from reknit.envelope.cloudevents import to_json
from reknit.testing.fabric.identities import secret_of, topics_of
from reknit.testing.fabric.nodes import AMQP_PORT, FabricNode
from reknit.testing.fabric.programs.amqp.client import AmqpClient, is_available
from reknit.testing.fabric.programs.amqp.messages import encode_message
from reknit.testing.fabric.programs.program import Scene
from reknit.testing.fabric.programs.web.posters import cloudevent
from reknit.testing.fabric.programs.web.requests import FAILURES, answer_to, request
from reknit.testing.fabric.record import Sent

Put = Callable[[], Sent]
"""Makes the tenant's next event."""
BUSY: Final = (429, 500, 503)
"""A node that stops, that can't store anything now, or where the tenant has to wait."""
DENIED: Final = "amqp:unauthorized-access"
STOPPED: Final = ("over", "amqp:link:detach-forced", "reknit:unavailable", "amqp:resource-limit-exceeded")
"""How the link of a client ends that did nothing wrong: its connection broke, or there was no room for it."""
AMQP_S: Final = 5.0


class TenantAtHttp:
    """One tenant's requests."""

    def __init__(self, scene: Scene, name: str, node: FabricNode, foreign: str) -> None:
        self._scene, self._name, self._node, self._foreign = scene, name, node, foreign
        self._rng = scene.fabric.rng(f"{name} at http")
        self._own = topics_of(name).replace("**", "a")
        self._bearer = {"Authorization": f"Bearer {secret_of(name)}"}

    async def act(self, put: Put) -> None:
        """Do something, if the node is there."""
        lives = self._node.starts
        try:
            found = await self._rng.choice((self._trespass, self._use_ticket, lambda: self._post(put)))()
        except FAILURES:
            return
        if found and self._node.starts == lives and self._node.is_up:
            self._scene.record.blame(f"{self._name} at HTTP: {found}")

    async def _post(self, put: Put) -> str:
        sent = put()
        form = urlencode({"kn_to": f"/{sent.topic}", "kn_payload": sent.payload})
        code, text = await answer_to(self._node, "POST", "/kn", self._bearer, form.encode())
        if code == 200:
            self._scene.record.stored(sent)
        return "" if code == 200 or code in BUSY else f"an event was answered with {code}: {text!r}"

    async def _trespass(self) -> str:
        """Every request that the rules do not allow is refused, and so is every token that proves nothing."""
        for method, path, form, headers in self._forbidden():
            body = form if isinstance(form, bytes) else urlencode(form).encode()
            code, _ = await answer_to(self._node, method, path, headers, body)
            if code != 403:
                return f"{method} {path} with {form!r} was answered with {code}"
        return ""

    def _forbidden(self) -> list[tuple[str, str, dict[str, str] | bytes, dict[str, str]]]:
        own, foreign, bearer = f"/{self._own}", f"/{self._foreign}", self._bearer
        route = {"do_method": "route"}
        event = to_json(cloudevent(self._node.host.time_us(), self._rng), b"mine")
        return [
            ("POST", "/kn", {"kn_to": foreign, "kn_payload": "mine"}, bearer),
            ("POST", "/kn", {**route, "kn_from": own, "kn_to": foreign}, bearer),
            ("POST", "/kn", {**route, "kn_from": foreign, "kn_to": own}, bearer),
            ("POST", "/kn", {"do_method": "noop", "kn_status_to": foreign}, bearer),
            ("GET", f"/kn?kn_from={foreign}", b"", bearer),
            ("GET", f"/sse?topic={foreign}", b"", bearer),
            ("GET", f"/sse?topic={own}&token={secret_of(self._name)}", b"", {}),
            ("POST", "/cloudevents", event, bearer),
            ("POST", "/ticket", b"", {}),
            ("POST", "/kn", {"do_method": "noop"}, {"Authorization": "Bearer nonsense"}),
        ]

    async def _use_ticket(self) -> str:
        """A ticket opens one tunnel, and no second one."""
        code, body = await answer_to(self._node, "POST", "/ticket", self._bearer)
        if code != 200:
            return f"a ticket was answered with {code}"
        path = f"/sse?topic={topics_of(self._name)}&ticket={msgspec.json.decode(body)['ticket']}"
        async with request(self._node, "GET", path) as answer:
            first = await answer.first_event()
            if answer.code != 200 or (b"opened" not in first and b"security.quotas" not in first):
                return f"a ticket opened {answer.code}: {first!r}"
        code, _ = await answer_to(self._node, "GET", path)
        return "" if code == 403 else f"a ticket that was used before opened {code}"


class TenantAtAmqp:
    """One tenant's connections. A password is the tenant's token."""

    def __init__(self, scene: Scene, name: str, node: FabricNode, foreign: str) -> None:
        self._scene, self._name, self._node, self._foreign = scene, name, node, foreign
        self._rng = scene.fabric.rng(f"{name} at amqp")
        self.is_open = is_available()

    async def act(self, put: Put) -> None:
        """Send one event, with a right or a wrong password, to a topic that is the tenant's or is not."""
        is_known, is_own = self._rng.random() < 0.8, self._rng.random() < 0.7
        sent = put() if is_known and is_own else None
        topic = sent.topic if sent is not None else self._foreign
        payload = sent.payload if sent is not None else b"mine"
        ended = await self._send(secret_of(self._name) if is_known else "nonsense", topic, payload)
        if sent is not None and ended == "ACCEPTED":
            self._scene.record.stored(sent)
        expected = ("over",) if not is_known else ("ACCEPTED", "RELEASED") if is_own else (DENIED,)
        if ended not in (*expected, *STOPPED):
            self._scene.record.blame(f"{self._name} at AMQP: a message to {topic} ended with {ended}")

    async def _send(self, password: str, topic: str, payload: bytes) -> str:
        """The outcome of a message, or the condition with which its link was closed. Raises `TimeoutError`."""
        ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        message = [encode_message(payload, self._rng)]

        def on_event(name: str, what: Any) -> None:
            if name == "PN_LINK_FLOW" and message and what.credit:
                what.delivery("1")
                what.stream(message.pop())
                what.advance()
                client.turn()
            elif name == "PN_LINK_REMOTE_CLOSE" and not ended.done():
                ended.set_result(what.remote_condition.name if what.remote_condition else "over")
            elif name == "PN_DELIVERY" and what.settled and not ended.done():
                ended.set_result(what.remote_state.name)

        client = AmqpClient(self._name, on_event, user=self._name, password=password)
        try:
            async with asyncio.timeout(AMQP_S):
                session = await client.open(self._node.host.address, AMQP_PORT)
                link = session.sender("out")
                link.target.address = topic
                link.open()
                client.turn()
                await asyncio.wait((ended, client.over), return_when=asyncio.FIRST_COMPLETED)
                return ended.result() if ended.done() else "over"
        finally:
            client.abort()
