from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from reknit.processes.process import NodeProcess, ending


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """One node for all tests of a file: what one does to it may not disturb the others."""
    folder: Path = tmp_path_factory.mktemp("node")
    process = NodeProcess(folder)
    with ending(process):
        process.start()
        yield process
        assert process.is_running, process.output()
        assert process.stop() == 0, process.output()
    assert "Traceback" not in process.output()
