from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.gateway.http.http_client import Web, web


@pytest.fixture
def node() -> Iterator[Web]:
    """A node with its journal in memory that serves HTTP."""
    with web() as one:
        yield one
