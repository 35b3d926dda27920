from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.client.node_thread import serving


@pytest.fixture
def url() -> Iterator[str]:
    """Where a node listens that has nothing yet."""
    with serving() as node:
        yield node.urls[0]
