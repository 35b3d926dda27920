"""Server-Sent Events and WebSocket over the same journal."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from reknit.batch import Batch
from reknit.config import RetentionSettings
from tests.gateway.http.http_client import WAIT_S, Stream, Web, config, web


def fields(stream: Stream, wanted: bytes) -> list[dict[str, str]]:
    """The fields of every event so far, once one contains this."""
    stream.until(wanted)
    while not stream.body.endswith(b"\n\n"):
        stream._advance()
    found = stream.body.decode().split("\n\n")[:-1]
    return [dict(line.split(": ", 1) for line in block.split("\n")) for block in found]


def sse(node: Web, pattern: str = "what/**", **headers: str) -> Stream:
    return node.stream(f"/sse?topic={pattern}", **headers)


def test_the_first_event_says_live_and_sets_the_wait_and_the_place(node: Web) -> None:
    with sse(node) as stream:
        [first] = fields(stream, b'"state"')
        assert first["event"] == "opened"
        assert json.loads(first["data"]) == {"state": "live", "recovered": False, "heartbeat_s": 15}
        assert 500 <= int(first["retry"]) <= 1500
        assert first["id"].startswith(node.node.epoch)
        assert stream.head.headers["content-type"].startswith("text/event-stream")


def test_events_come_with_topic_source_seq_headers_and_payload(node: Web) -> None:
    with sse(node) as stream:
        fields(stream, b'"state"')
        node.post("/what/chat", "hello\nthere", kn_id="m1", kn_time_t="7")
        event = json.loads(fields(stream, b"m1")[-1]["data"])
        assert (event["topic"], event["seq"], event["payload"]) == ("what/chat", 1, "hello\nthere")
        assert event["headers"] == {"kn_id": "m1", "kn_time_t": "7"}


def test_last_event_id_goes_on_and_the_first_event_says_recovered(tmp_path: Path) -> None:
    with web(config(tmp_path)) as node, sse(node) as stream:
        fields(stream, b'"state"')
        node.post("/what/chat", "one")
        place = fields(stream, b"one")[-1]["id"]
        node.post("/what/chat", "two")
    with web(config(tmp_path)) as node:
        with sse(node, Last_Event_ID=place) as stream:
            opened, event = fields(stream, b"two")
            assert json.loads(opened["data"])["state"] == "recovered"
            assert json.loads(event["data"])["payload"] == "two"
        with node.stream(f"/sse?topic=what/**&Last-Event-ID={place}") as stream:
            assert '"recovered"' in fields(stream, b"two")[0]["data"]


def test_the_header_goes_before_the_query(node: Web) -> None:
    with sse(node) as stream:
        place = fields(stream, b'"state"')[0]["id"]
    with node.stream("/sse?topic=a&Last-Event-ID=00-0-0", Last_Event_ID=place) as stream:
        assert json.loads(fields(stream, b'"state"')[0]["data"])["recovered"] is True


@pytest.mark.parametrize("place", ["00-0-0", "nonsense"])
def test_what_cannot_be_recovered_is_told_in_band_with_200_and_then_goes_on_live(
    node: Web, place: str
) -> None:
    node.post("/what/chat", "missed")
    with sse(node, Last_Event_ID=place) as stream:
        opened = json.loads(fields(stream, b'"state"')[0]["data"])
        assert (stream.head.code, opened["state"], opened["recovered"]) == (200, "lost", False)
        assert opened["why"]
        node.post("/what/chat", "next")
        assert [json.loads(one["data"]).get("payload") for one in fields(stream, b"next")] == [None, "next"]


def test_a_purged_place_is_lost_not_a_fresh_start(tmp_path: Path) -> None:
    small = config(tmp_path, RetentionSettings(bytes_max=16 << 10), segment_bytes=4096)
    with web(small) as node:
        with sse(node) as stream:
            place = fields(stream, b'"state"')[0]["id"]
        while node.node.journal.start == 0:
            node.post("/what/chat", "x" * 3_000)
        with sse(node, Last_Event_ID=place) as stream:
            assert json.loads(fields(stream, b'"state"')[0]["data"])["state"] == "lost"


def test_a_heartbeat_moves_a_quiet_streams_place_on_without_an_event() -> None:
    with web(config(heartbeat_s=0.05)) as node, sse(node, "quiet") as stream:
        fields(stream, b'"state"')
        node.post("/busy", "x")
        place = f"{node.node.epoch}-{node.node.journal.end}-0"
        stream.until(f"id: {place}\nevent: heartbeat\ndata: {{}}\n\n".encode())
        assert b'"payload"' not in stream.body


def test_a_stream_says_how_often_it_sends_a_heartbeat() -> None:
    with web(config(heartbeat_s=7)) as node, sse(node) as stream:
        assert json.loads(fields(stream, b'"state"')[0]["data"])["heartbeat_s"] == 7
        with node.tunnel() as tunnel:
            assert tunnel.events(1)[0]["kn_heartbeat_s"] == b"7"


def test_no_5xx_on_a_stream_one_too_many_is_told_inside_it() -> None:
    with web(config(tunnels_max=1)) as node, sse(node) as stream:
        fields(stream, b'"state"')
        with sse(node) as other:
            assert other.head.code == 200
            assert b"event: closing" in other.rest()


def test_a_bad_pattern_is_400_and_another_method_501(node: Web) -> None:
    assert node.request("/sse?topic=a//b").code == 400
    assert node.request("/sse").code == 400
    assert node.request("/sse?topic=a", "POST").code == 501


def test_payloads_that_are_no_text_come_as_base64(node: Web) -> None:
    with sse(node) as stream:
        fields(stream, b'"state"')
        node.request("/kn", "POST", b"kn_to=/what/chat;kn_payload=%FF%00")
        assert json.loads(fields(stream, b"base64")[-1]["data"])["payload_base64"] == "/wA="


# -- WebSocket


def ws(node: Web, query: str = "topic=what/**", **options: Any) -> AbstractContextManager[ClientConnection]:
    connection: AbstractContextManager[ClientConnection] = connect(
        f"ws://127.0.0.1:{node.port}/ws?{query}", **options
    )
    return connection


def test_a_websocket_says_first_whether_it_recovered_and_carries_events_as_json(node: Web) -> None:
    with ws(node) as socket:
        opened = json.loads(socket.recv(WAIT_S))
        assert (opened["type"], opened["state"], opened["recovered"]) == ("opened", "live", False)
        node.post("/what/chat", "one")
        event = json.loads(socket.recv(WAIT_S))
        assert (event["type"], event["topic"], event["payload"]) == ("event", "what/chat", "one")
    node.post("/what/chat", "two")
    with ws(node, f"topic=what/**&from={event['checkpoint']}") as socket:
        assert json.loads(socket.recv(WAIT_S))["state"] == "recovered"
        assert json.loads(socket.recv(WAIT_S))["payload"] == "two"
    with ws(node, "topic=what/**&from=00-0-0") as socket:
        assert json.loads(socket.recv(WAIT_S))["state"] == "lost"


def test_a_binary_websocket_carries_batches_as_they_are(node: Web) -> None:
    with ws(node, "topic=what/**&format=binary") as socket:
        json.loads(socket.recv(WAIT_S))
        node.post("/what/chat", "one")
        message = socket.recv(WAIT_S)
        assert isinstance(message, bytes)
        _, skip, frame = msgspec.msgpack.decode(message)
        assert (skip, Batch.parse(frame).payloads()) == (0, [b"one"])


def test_a_websocket_answers_pings_and_closes_in_order(node: Web) -> None:
    with ws(node) as socket:
        socket.recv(WAIT_S)
        assert socket.ping().wait(WAIT_S)
        socket.close()
    assert len(node.http.tunnels) == 0


def test_long_messages_have_long_frames(node: Web) -> None:
    with ws(node, max_size=None) as socket:
        socket.recv(WAIT_S)
        for size in (100, 200, 70_000):
            node.post("/what/chat", "x" * size)
            assert len(json.loads(socket.recv(WAIT_S))["payload"]) == size


def test_a_websocket_of_another_site_is_refused_unless_it_is_allowed(node: Web) -> None:
    with pytest.raises(InvalidStatus), ws(node, origin="http://evil.example"):
        pass
    with (
        web(config(origins=("http://good.example",))) as other,
        ws(other, origin="http://good.example") as socket,
    ):
        socket.recv(WAIT_S)


def test_a_stopping_server_says_goodbye_to_a_websocket() -> None:
    with ExitStack() as stack:
        with web() as node:
            socket = stack.enter_context(ws(node))
            socket.recv(WAIT_S)
        with pytest.raises(ConnectionClosed) as closed:
            socket.recv(WAIT_S)
    assert closed.value.rcvd is not None
    assert "stops" in closed.value.rcvd.reason
