"""What a node that can be reached from other machines should be told: that it has no rules, or no TLS."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

PLAIN: Final = frozenset(("tcp", "http", "amqp"))
"""The schemes without encryption."""


def exposures(urls: Iterable[str], is_open: bool) -> Iterator[str]:
    """What to warn of, for the addresses on which a node listens.

    >>> list(exposures(["tcp://127.0.0.1:7440", "tls://0.0.0.0:7441"], is_open=False))
    []
    >>> [line.partition(":")[0] for line in exposures(["tls://0.0.0.0:7441", "http://10.0.0.7:80"], is_open=True)]
    ['everyone who reaches tls', 'everyone who reaches http']
    >>> [line.partition(":")[0] for line in exposures(["amqp://[::]:5672"], is_open=False)]
    ['whoever is on the way to amqp']
    """
    for url in urls:
        if _is_local(url):
            continue
        if is_open:
            yield f"everyone who reaches {url} may do everything: set rules (security.allow)"
        elif url.partition(":")[0] in PLAIN:
            yield f"whoever is on the way to {url} can read events and tokens: it has no TLS"


def _is_local(url: str) -> bool:
    host = urlsplit(url).hostname
    if host is None or host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
