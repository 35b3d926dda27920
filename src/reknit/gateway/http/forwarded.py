"""What a trusted proxy says of its client: `X-Forwarded-For`, `-Host` and `-Proto`, or PROXY protocol version 2.

Anybody can send these headers. They count only from the addresses in `http.trusted_proxies`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import ip_address, ip_network
from typing import Final, NamedTuple

SIGNATURE: Final = b"\r\n\r\n\x00\r\nQUIT\n"
HEADER_BYTES: Final = 16
ADDRESSES_BYTES_MAX: Final = 4096
_ADDRESS_BYTES: Final = {0x11: 4, 0x21: 16}
"""By address family and protocol: TCP over IPv4, and over IPv6."""


class TrustedProxies:
    """The proxies of `http.trusted_proxies`.

    >>> proxies = TrustedProxies(["127.0.0.1", "10.1.0.0/16"])
    >>> proxies.client("127.0.0.1", "6.6.6.6, 198.51.100.7, 10.1.2.3")
    '198.51.100.7'
    >>> proxies.client("198.51.100.7", "1.2.3.4")
    '198.51.100.7'
    """

    def __init__(self, networks: Sequence[str]) -> None:
        self._networks = [ip_network(one) for one in networks]

    def is_trusted(self, address: str) -> bool:
        """Whether what this address says of others counts."""
        if not self._networks:
            return False
        try:
            found = ip_address(address)
        except ValueError:
            return False
        return any(found in network for network in self._networks)

    def client(self, address: str, forwarded_for: str) -> str:
        """The address of a request's client: the last one that no trusted proxy has."""
        hops = [one.strip() for one in forwarded_for.split(",") if one.strip()]
        while self.is_trusted(address) and hops:
            hop = _without_port(hops.pop())
            if hop is None:
                break
            address = hop
        return address

    def forwarded(self, headers: Mapping[str, str]) -> tuple[str, str]:
        """The host and the scheme that a trusted proxy's client asked for; empty where it does not say."""
        host = headers.get("x-forwarded-host", "").rpartition(",")[2].strip()
        scheme = headers.get("x-forwarded-proto", "").rpartition(",")[2].strip().lower()
        return host, scheme if scheme in ("http", "https") else ""


def _without_port(text: str) -> str | None:
    """An address, perhaps with a port; None if it is none."""
    for candidate in (text, text.strip("[]"), text.rpartition(":")[0].strip("[]")):
        try:
            return str(ip_address(candidate))
        except ValueError:
            continue
    return None


class ProxyHeader(NamedTuple):
    """The header of a connection that a proxy passes on: its length, and the client's address if it says one."""

    size: int
    address: str = ""


def read_proxy_header(data: bytes) -> ProxyHeader | None:
    """The header at the start of a connection; of size 0 if there is none; None if it is not complete.

    Raises `ValueError` if it is not of version 2.

    >>> head = SIGNATURE + bytes((0x21, 0x11, 0, 12)) + bytes((198, 51, 100, 7, 127, 0, 0, 1, 1, 2, 3, 4))
    >>> read_proxy_header(head + b"GET"), read_proxy_header(head[:20]), read_proxy_header(b"GET /")
    (ProxyHeader(size=28, address='198.51.100.7'), None, ProxyHeader(size=0, address=''))
    """
    if not data.startswith(SIGNATURE[: len(data)]):
        return ProxyHeader(0)
    if len(data) < HEADER_BYTES:
        return None
    version, family = data[12], data[13]
    length = int.from_bytes(data[14:16], "big")
    if version not in (0x20, 0x21) or length > ADDRESSES_BYTES_MAX:
        raise ValueError("the header of the PROXY protocol is not of version 2")
    if len(data) < HEADER_BYTES + length:
        return None
    size = _ADDRESS_BYTES.get(family, 0)
    is_local = version == 0x20  # a health check of the proxy itself
    if is_local or not size or length < 2 * size:
        return ProxyHeader(HEADER_BYTES + length)
    address = ip_address(data[HEADER_BYTES : HEADER_BYTES + size])
    return ProxyHeader(HEADER_BYTES + length, str(address))
