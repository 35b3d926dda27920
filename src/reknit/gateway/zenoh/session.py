"""The Zenoh session of a gateway. Everything here may block: call it on a thread of its own (`threads.call`)."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import zenoh

from reknit.config import RecoverySettings, TransportSettings
from reknit.errors import InvalidConfig
from reknit.gateway.zenoh.attributes import read_sample
from reknit.gateway.zenoh.samples import ZenohSample
from reknit.gateway.zenoh.threads import call, each, join, leave

log = logging.getLogger("reknit.zenoh")

QUERY_S: Final = 5.0
CHANNEL_MAX: Final = 256
RETRY_MS: Final = {"period_init_ms": 100, "period_max_ms": 2_000, "period_increase_factor": 2}
"""How soon a lost connection is tried again."""
OPEN_AGAIN_S: Final = 0.5
"""How soon a client tries again to find its router."""


def channel() -> Any:
    """Where samples wait until they are read. While it is full, Zenoh waits or drops, as the publishers chose."""
    return zenoh.handlers.FifoChannel(CHANNEL_MAX)


def zenoh_tls(settings: TransportSettings) -> dict[str, object]:
    """Zenoh's settings for endpoints with TLS: the files of `[transport]`."""
    ca, cert, key = settings.tls_ca_file, settings.tls_cert_file, settings.tls_key_file
    files = {
        "root_ca_certificate": ca,
        "listen_certificate": cert,
        "listen_private_key": key,
        "connect_certificate": settings.tls_client_cert_file or cert,
        "connect_private_key": settings.tls_client_key_file or key,
    }
    return {f"transport/link/tls/{name}": str(Path(file).absolute()) for name, file in files.items() if file}


def zenoh_config(
    listen: Iterable[str],
    connect: Iterable[str],
    mode: str = "peer",
    tls: Mapping[str, object] | None = None,
    is_gossiping: bool = False,
) -> zenoh.Config:
    """Zenoh's settings: exactly these endpoints. With gossip, peers behind a router find each other."""
    config = zenoh.Config()
    settings: dict[str, object] = {
        "mode": mode,
        "listen/endpoints": list(listen),
        "connect/endpoints": list(connect),
        "connect/timeout_ms": 0 if mode == "client" else -1,
        "connect/exit_on_failure": False,
        "connect/retry": RETRY_MS,
        "scouting/multicast/enabled": False,
        "scouting/gossip/enabled": is_gossiping,
        **(tls or {}),
    }
    try:
        for key, value in settings.items():
            config.insert_json5(key, json.dumps(value))
    except zenoh.ZError as error:
        raise InvalidConfig(
            "recovery.zenoh_listen", f"{listen} {connect}", f"is refused by Zenoh: {error}"
        ) from None
    return config


def gateway_mode(settings: RecoverySettings) -> str:
    """As what a gateway joins. A client gets on with routers and with peers; behind a router, peers see only clients.

    >>> gateway_mode(RecoverySettings(zenoh_connect=("tcp/10.0.0.9:7447",)))
    'client'
    >>> gateway_mode(RecoverySettings(zenoh_listen=("tcp/127.0.0.1:7447",)))
    'peer'
    """
    if settings.zenoh_mode != "auto":
        return settings.zenoh_mode
    is_client = len(settings.zenoh_connect) == 1 and not settings.zenoh_listen and not settings.zenoh_gossip
    return "client" if is_client else "peer"


def gateway_config(settings: RecoverySettings, transport: TransportSettings) -> zenoh.Config:
    """Zenoh's settings for a gateway. Raises `InvalidConfig`."""
    if settings.zenoh_mode == "client" and settings.zenoh_listen:
        raise InvalidConfig(
            "recovery.zenoh_listen",
            ", ".join(settings.zenoh_listen),
            "is not possible with recovery.zenoh_mode = 'client'; name a router in recovery.zenoh_connect instead",
        )
    return zenoh_config(
        settings.zenoh_listen,
        settings.zenoh_connect,
        gateway_mode(settings),
        zenoh_tls(transport),
        settings.zenoh_gossip,
    )


class ZenohSession:
    """One session. After `leave`, nothing more is put or taken."""

    def __init__(self, config: zenoh.Config) -> None:
        self._config = config
        self._is_client = json.loads(config.get_json("mode")) == "client"
        self._session: zenoh.Session | None = None
        self._declared: list[Any] = []
        self._readers: list[threading.Thread] = []
        self._is_leaving = threading.Event()

    @property
    def is_leaving(self) -> bool:
        return self._is_leaving.is_set()

    @property
    def _open(self) -> zenoh.Session:
        assert self._session is not None
        return self._session

    async def open(self) -> None:
        """Join the network. A client waits until its router is there."""
        is_told = False
        while self._session is None:
            try:
                self._session = await call(zenoh.open, self._config)
            except zenoh.ZError as error:
                if not self._is_client:
                    raise
                if not is_told:
                    log.warning("no Zenoh router or peer answers yet, trying again: %s", error)
                is_told = True
                await asyncio.sleep(OPEN_AGAIN_S)

    def subscribe(self, pattern: str, on_sample: Callable[[zenoh.Sample], None]) -> None:
        """Blocking: samples of others are passed on, on a thread of their own."""
        remote = zenoh.Locality.REMOTE
        self._read(self._open.declare_subscriber(pattern, channel(), allowed_origin=remote), on_sample)

    def answer(self, pattern: str, on_query: Callable[[zenoh.Query], None]) -> None:
        """Blocking: queries of others are passed on, on a thread of their own."""
        remote = zenoh.Locality.REMOTE
        self._read(self._open.declare_queryable(pattern, channel(), allowed_origin=remote), on_query)

    def watch(self, pattern: str, on_token: Callable[[zenoh.Sample], None]) -> None:
        """Blocking: liveliness tokens that are there, come and go are passed on, on a thread of their own."""
        made = self._open.liveliness().declare_subscriber(pattern, channel(), history=True)
        self._read(made, on_token)

    def _read(self, declared: Any, handle: Callable[[Any], None]) -> None:
        self._declared.append(declared)
        self._readers.append(each(declared, handle))

    def token(self, key: str) -> zenoh.LivelinessToken:
        """Blocking: declare a liveliness token, until the session ends or it is undeclared."""
        return self._open.liveliness().declare_token(key)

    def keep(self, declared: Any) -> None:
        """Undeclare this when the session ends."""
        self._declared.append(declared)

    def publisher(self, key: str, priority: zenoh.Priority, *, may_drop: bool = False) -> zenoh.Publisher:
        """Blocking: declare a publisher, which waits while the network is congested unless it may drop."""
        kind = zenoh.CongestionControl
        return self._open.declare_publisher(
            key, congestion_control=kind.DROP if may_drop else kind.BLOCK, priority=priority
        )

    def put_heartbeat(self, key: str, payload: zenoh.ZBytes) -> None:
        """Blocking: say something that may be dropped, behind everything else."""
        self._open.put(
            key,
            payload,
            priority=zenoh.Priority.BACKGROUND,
            congestion_control=zenoh.CongestionControl.DROP,
        )

    def tokens(self, pattern: str) -> list[str]:
        """Blocking: the keys of the liveliness tokens that are there."""
        try:
            found = self._open.liveliness().get(pattern, timeout=QUERY_S)
            return [str(reply.ok.key_expr) for reply in found if reply.ok is not None]
        except zenoh.ZError as error:
            log.debug("%s: %s", pattern, error)
            return []

    def query(self, selector: str) -> list[ZenohSample]:
        """Blocking: all replies to a query."""
        if self.is_leaving:
            return []
        try:
            replies = self._open.get(
                selector,
                target=zenoh.QueryTarget.ALL,
                consolidation=zenoh.ConsolidationMode.NONE,
                timeout=QUERY_S,
            )
            return [read_sample(reply.ok) for reply in replies if reply.ok is not None]
        except zenoh.ZError as error:
            log.debug("%s: %s", selector, error)
            return []

    def leave(self) -> None:
        """Put and take nothing more."""
        self._is_leaving.set()

    async def close(self, publishers: Iterable[Any]) -> None:
        """Undeclare everything, and close. Returns after a time limit even if Zenoh blocks."""
        if self._session is None:
            return
        try:
            await call(leave, self._session, [*self._declared, *publishers])
            await call(join, self._readers)
        except (TimeoutError, zenoh.ZError) as error:
            log.warning("the Zenoh session stays open: %s", str(error) or "it does not close in time")
