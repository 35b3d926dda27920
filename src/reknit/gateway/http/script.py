"""The JavaScript module for pages, `/reknit.js`, and its parts below `/reknit/HASH/`.

The parts have their hash in the address, so a browser keeps them for ever. `/reknit.js` names the newest: it is checked
each time, with its ETag. Pages of every site may load them: only then can they be told why a stream is refused.
"""

from __future__ import annotations

import gzip
from hashlib import sha256
from importlib import resources
from typing import Final, NamedTuple

from reknit.gateway.http.connection import TEXT, HttpConnection
from reknit.gateway.http.requests import HttpRequest

ENTRY: Final = "/reknit.js"
FOLDER: Final = "/reknit/"
HASH_DIGITS: Final = 16
KEPT: Final = "public, max-age=31536000, immutable"
CHECKED: Final = "no-cache"


class StaticFile(NamedTuple):
    """A file, and its packed form."""

    body: bytes
    packed: bytes
    etag: str
    cache_control: str


class ScriptPages:
    """The files of the npm package in `gateway/static/reknit`, read once."""

    def __init__(self) -> None:
        folder = resources.files("reknit.gateway").joinpath("static", "reknit")
        parts = {one.name: one.read_bytes() for one in folder.iterdir() if one.name.endswith(".js")}
        digest = sha256(b"".join(name.encode() + parts[name] for name in sorted(parts)))
        base = f"{FOLDER}{digest.hexdigest()[:HASH_DIGITS]}/"
        self._files = {base + name: _file(body, KEPT) for name, body in parts.items()}
        # relative, so that a proxy may serve a node below a path of its own
        entry = f'export * from ".{base}index.js";\n'
        self._files[ENTRY] = _file(entry.encode(), CHECKED)

    async def answer(self, connection: HttpConnection, request: HttpRequest) -> None:
        """Send a file; 304 if the browser has it."""
        found = self._files.get(request.path)
        if request.method not in ("GET", "HEAD"):
            connection.answer_text(request, 405, "use GET")
        elif found is None:
            text = f"{request.path} is not of this version of the node; load {ENTRY} again"
            connection.answer(404, [TEXT, _ANYBODY], f"{text}\n".encode(), request.keep_alive)
        else:
            self._send(connection, request, found)

    def _send(self, connection: HttpConnection, request: HttpRequest, file: StaticFile) -> None:
        headers = [
            ("Cache-Control", file.cache_control),
            ("ETag", file.etag),
            ("Vary", "Accept-Encoding"),
            _ANYBODY,
        ]
        if file.etag in request.headers.get("if-none-match", ""):
            connection.answer(304, headers, b"", request.keep_alive)
            return
        headers.append(("Content-Type", "text/javascript; charset=utf-8"))
        body = file.body
        if accepts_gzip(request.headers.get("accept-encoding", "")):
            headers.append(("Content-Encoding", "gzip"))
            body = file.packed
        connection.answer(200, headers, body, request.keep_alive)


_ANYBODY: Final = ("Access-Control-Allow-Origin", "*")


def _file(body: bytes, cache_control: str) -> StaticFile:
    etag = f'"{sha256(body).hexdigest()[:HASH_DIGITS]}"'
    return StaticFile(body, gzip.compress(body, mtime=0), etag, cache_control)


def accepts_gzip(text: str) -> bool:
    """Whether a client unpacks gzip, by its `Accept-Encoding`.

    >>> accepts_gzip("br, gzip;q=0.8"), accepts_gzip("gzip;q=0, br"), accepts_gzip("")
    (True, False, False)
    """
    for one in text.lower().split(","):
        name, _, parameters = one.partition(";")
        if name.strip() in ("gzip", "*"):
            return parameters.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False
