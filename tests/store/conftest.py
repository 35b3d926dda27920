from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from reknit.store.journal import Journal
from tests.store.journals import KINDS, Maker


@pytest.fixture(params=KINDS)
def maker(request: pytest.FixtureRequest, tmp_path: Path) -> Maker:
    """Journals of every kind, one after the other."""
    return Maker(request.param, tmp_path / "journal")


@pytest.fixture(params=[kind for kind in KINDS if kind != "memory"])
def lasting(request: pytest.FixtureRequest, tmp_path: Path) -> Maker:
    """Journals of every kind that can be opened again."""
    return Maker(request.param, tmp_path / "journal")


@pytest.fixture
def journal(maker: Maker) -> Iterator[Journal]:
    opened = maker.open()
    yield opened
    opened.close()
