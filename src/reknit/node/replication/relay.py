"""A relay: a node stores the events of another node, each with its source and seq.

A relay is a durable subscriber at the other node, under its own name. It accepts an event there once the event is
durable here, so nothing is missed whichever of the two nodes is killed. Gaps are recovered from the other node's
journal, or from any cache that it knows. Events that nobody has are lost, and the subscribers are told.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from reknit.config import Config
from reknit.errors import InvalidConfig, LocalError, ReknitError
from reknit.node.replication.remote_session import ConnectSession
from reknit.node.replication.replicator import Replicator, Runner
from reknit.node.replication.visited_nodes import VisitedReports
from reknit.protocol.replication.batch_expiry import BatchExpiry
from reknit.protocol.replication.replication import Replication
from reknit.protocol.subscribe.inputs import LossReport
from reknit.topic import Pattern
from reknit.transport.connection import Handler
from reknit.transport.tcp import parse_url
from reknit.trust.own_token import own_token

log = logging.getLogger("reknit.node")

RETRY_S: Final = 0.5
"""How long a copy waits before it is tried again."""


def parse_relay(text: str) -> tuple[str, Pattern]:
    """The address and the pattern of a relay.

    >>> parse_relay("tcp://10.0.0.7:7440=plant/**")
    ('tcp://10.0.0.7:7440', Pattern(text='plant/**'))
    >>> parse_relay("tcp://10.0.0.7:7440")[1].text
    '**'
    """
    url, _, pattern = text.partition("=")
    try:
        parse_url(url)
        return url, Pattern(pattern or "**")
    except LocalError as error:
        raise InvalidConfig("recovery.relays", text, f"is not a valid relay: {error}") from None


async def retry_forever(copy: Callable[[], Awaitable[None]], what: str) -> None:
    """Copy events until this is cancelled; after an error, retry. `what` names the copy in the log."""
    while True:
        try:
            await copy()
        except (ReknitError, OSError) as error:
            log.warning("%s waits: %s", what, error)
        await asyncio.sleep(RETRY_S)


def make_replication(url: str, config: Config, expiry: BatchExpiry | None = None) -> Replication:
    """A replication from the node at `url`, as configured."""
    settings = config.recovery
    return Replication(
        url,
        window_bytes=config.limits.publish_window_bytes,
        timeout_s=settings.ask_timeout_s,
        ask_bytes_max=settings.ask_bytes_max,
        expiry=expiry,
    )


class RelayNode(Runner, Handler, Protocol):
    """The node that a relay copies into."""

    name: str
    config: Config


class Relay:
    """Events of a pattern from another node into this one, while the node runs."""

    def __init__(
        self, text: str, *, node: RelayNode, connect: ConnectSession, add_cache: Callable[[str], None]
    ) -> None:
        self.url, self.pattern = parse_relay(text)
        self._config = node.config
        self._name = f"relay/{node.name}/{self.pattern.text}"
        self._connect = connect
        self._add_cache = add_cache
        self._replicator = Replicator(
            make_replication(self.url, node.config),
            self._name,
            config=node.config,
            runner=node,
            source_url=self.url,
            handler=node,
            token=own_token(node.config.security),
        )
        self._visited = VisitedReports(self._replicator.tell)
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin; the other node may come up later."""
        await self._replicator.open()
        self._add_cache(self.url)
        self._task = asyncio.create_task(retry_forever(self._copy, f"the relay of {self.url}"))

    async def stop(self) -> None:
        """Stop; a relay that starts again resumes where it left off."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._replicator.close()

    async def _copy(self) -> None:
        config = self._config
        session = self._connect(self.url, config=config, token=own_token(config.security), wait_s=RETRY_S)
        reported: list[LossReport] = []

        def on_lost(report: LossReport) -> None:
            reported.append(report)
            wanted.wake()

        async with session:
            wanted = session.subscribe(
                self.pattern.text,
                name=self._name,
                history=True,
                auto_accept=False,
                is_cache=True,
                on_lost=on_lost,
                confirm_losses=False,
            )
            self._replicator.confirm_lost = wanted.confirm_lost
            async with wanted as events:
                while (batches := await events.take_all(gives_up=lambda: bool(reported))) or reported:
                    losses = reported.copy()
                    reported.clear()
                    sources = [batch.source for batch in batches] + [loss.source for loss in losses]
                    await self._visited.tell(session, sources)
                    self._replicator.take(batches)
                    self._replicator.report(losses)
                    await self._replicator.room()
