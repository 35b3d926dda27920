"""`[rpc]`: requests and their responses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from reknit.config.settings import Section, setting

__all__ = ["RpcSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RpcSettings(Section):
    """Requests and their responses.

    >>> RpcSettings().ttl_ms
    5000
    """

    title: ClassVar[str] = "rpc"
    ttl_ms: int = setting(5_000, "the ttl of a request without one", low=1, high=(1 << 32) - 1)
    grace_s: float = setting(1.0, "how long after that a client waits for the node's answer")
    requests_max: int = setting(65_536, "requests of one session that wait for their responses", low=1)
    watched_max: int = setting(1_000_000, "open requests that one node watches; more are refused", low=1)
    handlers_max: int = setting(64, "requests that one service handles at a time; more wait", low=1)
    publishers_max: int = setting(1_024, "addresses that one session keeps publishers for", low=1)
