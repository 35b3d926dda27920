"""`[node]`: a node's identity and its addresses."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from reknit.config.addresses import check_listen
from reknit.config.settings import Section, setting

__all__ = ["NodeSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings(Section):
    """A node's identity and its addresses.

    >>> NodeSettings().listen
    ('tcp://127.0.0.1:7440',)
    """

    title: ClassVar[str] = "node"
    name: str = setting("", "the node's name in reports and dead letters; empty: the host's name")
    data_dir: Path = setting(Path("reknit-data"), "the directory of the journal")  # noqa: RUF009
    listen: tuple[str, ...] = setting(("tcp://127.0.0.1:7440",), "addresses to listen on", check=check_listen)
