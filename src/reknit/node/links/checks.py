"""Checks on the configured links."""

from __future__ import annotations

from reknit.config import LINK_COST_MAX
from reknit.config.addresses import check_urls
from reknit.errors import InvalidConfig
from reknit.transport.tcp import parse_url


def parse_link(text: str, cost: int = 1) -> tuple[str, int]:
    """The address and the cost of a link.

    >>> parse_link("tcp://10.0.0.7:7440=10")
    ('tcp://10.0.0.7:7440', 10)
    >>> parse_link("tcp://10.0.0.7:7440")
    ('tcp://10.0.0.7:7440', 1)
    """
    url, _, given = text.partition("=")
    try:
        check_urls((url,))
    except ValueError as error:
        raise InvalidConfig("links.to", text, f"is not valid: {error}") from None
    parse_url(url)
    if given and not (given.isascii() and given.isdigit() and 0 < int(given) <= LINK_COST_MAX):
        raise InvalidConfig(
            "links.to", text, f"has no cost from 1 to {LINK_COST_MAX}: write tcp://HOST:PORT=10"
        )
    return url, int(given) if given else cost
