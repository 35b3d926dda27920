"""The module for pages: how it is served, and its own tests, which Node.js runs."""

from __future__ import annotations

import base64
import gzip
import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from reknit.batch import Batch
from reknit.gateway.http.formats import TunnelBatch
from reknit.gateway.http.websocket_formats import WsBinaryFormat
from tests.gateway.http.http_client import Web
from tests.gateway.http.programs import needs

TESTS = Path(__file__).parents[2] / "js"


def entry(node: Web) -> str:
    """The address of the module that `/reknit.js` names."""
    found = re.search(rb'"\.(/reknit/[0-9a-f]{16}/index\.js)"', node.request("/reknit.js").body)
    assert found is not None
    return found[1].decode()


def test_the_parts_have_their_hash_in_the_address_and_are_kept(node: Web) -> None:
    answer = node.request(entry(node))
    assert b"export function stream" in answer.body
    assert "immutable" in answer.headers["cache-control"]
    assert node.request("/reknit.js").headers["cache-control"] == "no-cache"
    assert node.request(entry(node).replace("index", "machine")).code == 200


@pytest.mark.parametrize("path", ["/reknit/0000000000000000/index.js", "/reknit/", "/reknit/../pages.py"])
def test_an_address_of_another_version_is_404_and_says_what_to_do(node: Web, path: str) -> None:
    answer = node.request(path)
    assert answer.code == 404
    assert b"load /reknit.js again" in answer.body


def test_a_browser_that_has_it_gets_304_without_a_body(node: Web) -> None:
    etag = node.request("/reknit.js").headers["etag"]
    answer = node.request("/reknit.js", If_None_Match=etag)
    assert (answer.code, answer.body) == (304, b"")
    assert node.request("/reknit.js", If_None_Match='"other"').code == 200


def test_it_is_packed_for_those_who_unpack_it(node: Web) -> None:
    plain, packed = node.request(entry(node)), node.request(entry(node), Accept_Encoding="br, gzip")
    assert packed.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in plain.headers
    assert gzip.decompress(packed.body) == plain.body


def test_pages_of_any_site_may_load_it(node: Web) -> None:
    answer = node.request("/reknit.js", Origin="https://elsewhere.example")
    assert answer.headers["access-control-allow-origin"] == "*"


@needs("node", "nodejs")
def test_its_own_tests_pass() -> None:
    batch = Batch.build(
        b"s" * 16,
        "plant/temp",
        7,
        [b"a", "ü".encode(), b""],
        time_us=1_794_768_337_000_000,
        columns={"headers": [None, {"k": "v"}, {}], "time": [1, 2, 3]},
    )
    frame = WsBinaryFormat().batch(TunnelBatch(batch, "e1", 4096, 1))
    message = frame[4:] if frame[1] == 126 else frame[2:]
    rows = [(8, 2, {"k": "v"}, "ü"), (9, 3, {}, "")]
    expected = [
        {"topic": "plant/temp", "source": (b"s" * 16).hex(), "seq": seq, "time_us": at, "headers": headers}
        | {"payload": payload}
        for seq, at, headers, payload in rows
    ]
    place = f"e1-{4096 + batch.head.length}-0"
    environment = {
        "REKNIT_MESSAGE": base64.b64encode(message).decode(),
        "REKNIT_EXPECTED": json.dumps({"checkpoint": place, "events": expected}),
    }
    ran = subprocess.run(
        ["node", "--test", f"{TESTS}/"],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stdout
    assert "# skipped 0" in ran.stdout
