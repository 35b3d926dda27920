"""Checks of network addresses in settings. Each raises `ValueError`."""

from __future__ import annotations

from ipaddress import ip_network
from urllib.parse import urlsplit

SCHEMES = ("tcp", "tls")


def check_urls(urls: tuple[str, ...]) -> None:
    """Addresses to listen on or to connect to, as `tcp://host:port`."""
    for url in urls:
        parts = urlsplit(url)
        if "@" in parts.netloc:
            raise ValueError("an address may not contain a user or password; use security.token_file")
        if parts.scheme not in SCHEMES or not parts.hostname or parts.port is None or parts.path:
            raise ValueError(f"{url!r} is not a valid address; write {' or '.join(SCHEMES)}://host:port")


def check_listen(urls: tuple[str, ...]) -> None:
    """Addresses to listen on: those to connect to, and Unix sockets, as `unix:///run/reknit.sock`."""
    check_urls(tuple(url for url in urls if not url.startswith("unix:")))
    for url in urls:
        if url.startswith("unix:") and not (url.startswith("unix:///") and url[len("unix:///") :]):
            raise ValueError(f"{url!r} is not a valid address; write unix:///PATH")


def check_host_port(text: str) -> None:
    """`host:port`, or nothing."""
    parts = urlsplit(f"//{text}")
    if text and (not parts.hostname or parts.port is None or parts.path):
        raise ValueError(f"{text!r} is not a valid address; write host:port")


def check_network(texts: tuple[str, ...]) -> None:
    """Addresses, or networks as `10.1.0.0/16`."""
    for text in texts:
        try:
            ip_network(text)
        except ValueError as error:
            raise ValueError(f"{text!r} is not an address or a network: {error}") from None
