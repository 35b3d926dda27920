"""A relay: a node stores the events of another node, each with its source and seq.

A relay is a durable subscriber at the other node, under its own name. It accepts an event there once the event is
durable here, so nothing is missed whichever of the two nodes is killed. Gaps are recovered from the other node's
journal, or from any cache that it knows. Events that nobody has are lost, and the subscribers are told.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from reknit.batch import Batch
from reknit.config import Config
from reknit.errors import InvalidConfig, LocalError, ReknitError
from reknit.node.replication.gap_filler import RETRY_S, GapFiller
from reknit.node.replication.local_publisher import MakePublisher
from reknit.node.replication.remote_session import ConnectSession
from reknit.topic import Pattern
from reknit.transport.tcp import parse_url

log = logging.getLogger("reknit.node")


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


def accept(batch: Batch) -> None:
    """Durable here: accepted at the node that delivered it. A recovered batch was not delivered there."""
    if batch.settle is not None:
        batch.accept()


class Relay:
    """Events of a pattern from another node into this one, while the node runs."""

    def __init__(
        self,
        text: str,
        *,
        config: Config,
        name: str,
        connect: ConnectSession,
        make_publisher: MakePublisher,
        add_cache: Callable[[str], None],
    ) -> None:
        self.url, self.pattern = parse_relay(text)
        self._config = config
        self._name = f"relay/{name}/{self.pattern.text}"
        self._connect = connect
        self._add_cache = add_cache
        token = config.security.token
        self._gaps = GapFiller(
            self.url, self._name, config=config, token=token, fill=lambda *gap: self._publisher.fill(*gap)
        )
        self._publisher = make_publisher(self._name, accept, self._gaps.recover)
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin; the other node may come up later."""
        await self._publisher.open()
        self._add_cache(self.url)
        self._task = asyncio.create_task(retry_forever(self._copy, f"the relay of {self.url}"))

    async def stop(self) -> None:
        """Stop; a relay that starts again resumes where it left off."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._gaps.close()
        await self._publisher.close()

    async def _copy(self) -> None:
        config = self._config
        session = self._connect(self.url, config=config, token=config.security.token, wait_s=RETRY_S)
        async with session:
            wanted = session.subscribe(
                self.pattern.text, name=self._name, history=True, auto_accept=False, is_cache=True
            )
            async with wanted as events:
                while batches := await events.take_all():
                    self._publisher.put(batches)
                    await self._publisher.room()
