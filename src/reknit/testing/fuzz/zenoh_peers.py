"""A hostile peer of a Zenoh network: it does the steps of inputs with one session of its own."""

from __future__ import annotations

import threading
from collections import deque
from contextlib import suppress
from typing import Any, Final

import msgspec
import zenoh

from reknit.gateway.zenoh.attributes import PRIORITIES
from reknit.gateway.zenoh.entities import EntityIds
from reknit.gateway.zenoh.session import zenoh_config
from reknit.gateway.zenoh.threads import call
from reknit.testing.fuzz.inputs import Step
from reknit.testing.fuzz.peers import Peers

PUT: Final = "put"
DELETE: Final = "delete"
ASK: Final = "ask"
TOKEN: Final = "token"
ANSWERS_S: Final = 0.5
TOKENS_MAX: Final = 50
KEY_BYTES_MAX: Final = 60_000
"""Zenoh's own library panics at longer ones, before it sends them."""
REFUSED: Final = (zenoh.ZError, ValueError, TypeError, OverflowError)
"""How Zenoh's own library refuses what can't be said."""


class Call(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a step does with a key or selector."""

    key: str
    payload: bytes = b""
    options: dict[str, Any] = {}

    def packed(self) -> bytes:
        """As the data of a step."""
        return msgspec.msgpack.encode(self)


class ZenohPeers:
    """Takes the steps of inputs: those for Zenoh here, and those for the node's own port there."""

    def __init__(self, port: int, tcp_port: int) -> None:
        self._endpoint = f"tcp/127.0.0.1:{port}"
        self._tcp = Peers(tcp_port)
        self._lock = threading.Lock()
        self._session: zenoh.Session | None = None
        self._tokens: deque[Any] = deque()
        self._declared: list[Any] = []
        self._ids = EntityIds()

    async def converse(self, steps: tuple[Step, ...]) -> None:
        """Take the steps, one after the other."""
        if steps and steps[0].do not in (PUT, DELETE, ASK, TOKEN):
            await self._tcp.converse(steps)
            return
        for step in steps:
            with suppress(TimeoutError):
                await call(self.take, step)

    def take(self, step: Step) -> None:
        """Blocking: take one step. What Zenoh refuses to say is left out."""
        try:
            one = msgspec.msgpack.decode(step.data, type=Call)
        except msgspec.DecodeError:  # a step that was cut while its input was made small
            return
        if len(one.key.encode("utf-8", "replace")) > KEY_BYTES_MAX:
            return
        try:
            with suppress(*REFUSED):
                self._do(step.do, one)
        except Exception:
            raise
        except BaseException:  # Zenoh's library panicked: its session does not survive that
            with self._lock:
                self._session = None

    def _do(self, what: str, one: Call) -> None:
        session = self._open()
        match what:
            case "put":
                session.put(one.key, one.payload, **self._options(one.options))
            case "delete":
                options = self._options(one.options)
                options.pop("encoding", None)
                session.delete(one.key, **options)
            case "ask":
                for _ in session.get(one.key, timeout=ANSWERS_S):
                    pass
            case "token":
                self._declare(session, one.key)

    def watch(self, key: str) -> list[object]:
        """Blocking: what comes on a key from now on."""
        seen: list[object] = []
        self._declared.append(self._open().declare_subscriber(key, seen.append))
        return seen

    def close(self) -> None:
        """Leave the network."""
        self._tcp.close()
        with self._lock:
            if self._session is not None:
                self._session.close()  # type: ignore[no-untyped-call]
            self._session = None

    def _open(self) -> zenoh.Session:
        with self._lock:
            if self._session is None:
                self._session = zenoh.open(zenoh_config([], [self._endpoint]))
            return self._session

    def _declare(self, session: zenoh.Session, key: str) -> None:
        self._tokens.append(session.liveliness().declare_token(key))
        if len(self._tokens) > TOKENS_MAX:
            self._tokens.popleft().undeclare()

    def _options(self, given: dict[str, Any]) -> dict[str, Any]:
        options = {name: value for name, value in given.items() if name in ("encoding", "attachment")}
        if stamp := given.get("timestamp"):
            options["timestamp"] = zenoh.Timestamp(zenoh.NTP64(stamp[0], stamp[1]), stamp[2])
        if level := given.get("priority"):
            options["priority"] = PRIORITIES[level - 1]
        if source := given.get("source"):
            options["source_info"] = zenoh.SourceInfo(
                self._ids.of(source[0].to_bytes(16, "little")), source[1]
            )
        return options
