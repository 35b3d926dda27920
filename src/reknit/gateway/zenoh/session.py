"""The Zenoh session of a gateway. Everything here may block: call it on a thread of its own (`threads.call`)."""

from __future__ import annotations

import base64
import json
import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import zenoh

from reknit import environment
from reknit.config import TransportSettings
from reknit.errors import InvalidConfig
from reknit.gateway.zenoh.samples import Origin, ZenohSample
from reknit.gateway.zenoh.threads import call, leave

log = logging.getLogger("reknit.zenoh")

QUERY_S = 5.0


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
    listen: Sequence[str],
    connect: Sequence[str],
    mode: str = "peer",
    tls: Mapping[str, object] | None = None,
) -> zenoh.Config:
    """Zenoh's settings: exactly these endpoints, without discovery."""
    config = zenoh.Config()
    settings: dict[str, object] = {
        "mode": mode,
        "listen/endpoints": list(listen),
        "connect/endpoints": list(connect),
        "connect/timeout_ms": -1,
        "connect/exit_on_failure": False,
        "scouting/multicast/enabled": False,
        "scouting/gossip/enabled": False,
        **(tls or {}),
    }
    try:
        for key, value in settings.items():
            config.insert_json5(key, json.dumps(value))
    except zenoh.ZError as error:
        raise InvalidConfig("recovery.zenoh_listen", f"{listen} {connect}", f"is refused: {error}") from None
    return config


class ZenohSession:
    """One session. After `leave`, nothing more is put or taken."""

    def __init__(self, config: zenoh.Config) -> None:
        self.zid = ""
        """The id of this session in the Zenoh network."""
        self._config = config
        self._session: zenoh.Session | None = None
        self._declared: list[Any] = []
        self._is_leaving = threading.Event()

    @property
    def is_leaving(self) -> bool:
        return self._is_leaving.is_set()

    def open(
        self,
        pattern: str,
        *,
        on_sample: Callable[[zenoh.Sample], None],
        on_query: Callable[[zenoh.Query], None],
        on_publisher: Callable[[zenoh.Sample], None],
    ) -> None:
        """Blocking: join the network. The callbacks run on Zenoh's threads.

        `on_query` gets queries for this session's publishers, `on_publisher` the liveliness tokens of advanced
        publishers.
        """
        session = self._session = zenoh.open(self._config)
        self.zid = str(session.info.zid())
        remote, liveliness = zenoh.Locality.REMOTE, session.liveliness()
        self._declared += [
            session.declare_subscriber(pattern, on_sample, allowed_origin=remote),
            session.declare_queryable(f"{pattern}/@adv/pub/{self.zid}/**", on_query),
            liveliness.declare_subscriber(f"{pattern}/@adv/pub/**", on_publisher, history=True),
        ]

    def publisher(self, key: str) -> zenoh.Publisher:
        """Blocking: declare a publisher that waits while the network is congested."""
        assert self._session is not None
        return self._session.declare_publisher(key, congestion_control=zenoh.CongestionControl.BLOCK)

    def query(self, selector: str) -> list[ZenohSample]:
        """Blocking: all replies to a query."""
        assert self._session is not None
        try:
            replies = self._session.get(
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

    async def close(self, publishers: Iterable[zenoh.Publisher]) -> None:
        """Undeclare everything, and close. Returns after a time limit even if Zenoh blocks."""
        if self._session is None:
            return
        try:
            await call(leave, self._session, [*self._declared, *publishers])
        except (TimeoutError, zenoh.ZError) as error:
            log.warning("the Zenoh session stays open: %s", str(error) or "it does not close in time")


def read_sample(sample: zenoh.Sample) -> ZenohSample:
    """A sample as a value of our own."""
    info, stamp, attachment = sample.source_info, sample.timestamp, sample.attachment
    headers: dict[str, str] = {}
    if sample.kind == zenoh.SampleKind.DELETE:
        headers["zenoh-kind"] = "delete"
    if attachment is not None:
        headers["zenoh-attachment"] = base64.b64encode(attachment.to_bytes()).decode()
    time_us = int(stamp.get_time().timestamp() * 1e6) if stamp is not None else environment.time_us()
    origin = Origin(str(info.source_id.zid), int(info.source_id.eid)) if info is not None else None
    sn = int(info.source_sn) if info is not None else 0
    return ZenohSample(str(sample.key_expr), sample.payload.to_bytes(), time_us, origin, sn, headers)
