"""The files of the page, which are in the package. A browser keeps them until they change."""

from __future__ import annotations

import hashlib
from importlib import resources
from typing import Final, NamedTuple

from reknit.gateway.http.connection import HttpConnection
from reknit.gateway.http.requests import HttpRequest

ROOT: Final = "/console/"
TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Everything comes from this node, no script or style is inside a page, and no other site shows the page in a frame."""
SAFE: Final = [
    ("Content-Security-Policy", POLICY),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
]


class ConsoleFile(NamedTuple):
    """One file."""

    type: str
    body: bytes
    tag: str


def read_files() -> dict[str, ConsoleFile]:
    """Every file below `static/`, by its path there."""
    found: dict[str, ConsoleFile] = {}
    waiting = [("", resources.files("reknit.console").joinpath("static"))]
    while waiting:
        prefix, folder = waiting.pop()
        for one in folder.iterdir():
            if one.is_dir():
                waiting.append((f"{prefix}{one.name}/", one))
            elif (kind := TYPES.get(one.name.rpartition(".")[2])) is not None:
                body = one.read_bytes()
                tag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
                found[f"{prefix}{one.name}"] = ConsoleFile(kind, body, tag)
    return found


class ConsoleFiles:
    """Answers with the page and with its files."""

    def __init__(self) -> None:
        self._files = read_files()

    async def answer(self, connection: HttpConnection, request: HttpRequest) -> None:
        """Answer with a file below `/console/`."""
        self._send(connection, request, request.path.removeprefix(ROOT))

    async def page(self, connection: HttpConnection, request: HttpRequest) -> None:
        """Answer with the page."""
        self._send(connection, request, "index.html")

    def _send(self, connection: HttpConnection, request: HttpRequest, name: str) -> None:
        file = self._files.get(name)
        if request.method not in ("GET", "HEAD"):
            connection.answer_text(request, 405, f"{request.path} can only be read")
        elif file is None:
            connection.answer_text(request, 404, f"the console has no file {name!r}")
        elif request.headers.get("if-none-match") == file.tag:
            connection.answer(304, [("ETag", file.tag), *SAFE], b"", request.keep_alive)
        else:
            headers = [("Content-Type", file.type), ("ETag", file.tag), ("Cache-Control", "no-cache"), *SAFE]
            body = b"" if request.method == "HEAD" else file.body
            connection.answer(200, headers, body, request.keep_alive)
