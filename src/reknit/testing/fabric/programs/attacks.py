"""What hostile peers send: valid messages of each protocol, then mutated, cut, repeated and out of order.

They have names, sources and topics of their own (`evil/…`): everything else that a node does must not change. The
messages between linked nodes and the orders of an operator are left out, as whoever may send them may change results.
"""

from __future__ import annotations

from random import Random
from typing import Any, Final

import msgspec

from reknit.batch import Batch
from reknit.frame import KIND_MESSAGE, LEAD, PREFIX, PREFIX_BYTES, checksum, wrap
from reknit.wire.codec import encode
from reknit.wire.links import AskWhole, Beat, Carry, Forward, Got, Pull, Returned, Skip, Via
from reknit.wire.messages import (
    Ack,
    Ask,
    Bye,
    Credit,
    Declare,
    DispositionRow,
    Held,
    Hello,
    Holding,
    Message,
    Ping,
    Pong,
    Rejection,
    Settle,
    Start,
    Subscribe,
    Unsubscribe,
)
from reknit.wire.outcomes import Want
from reknit.wire.recovery import Heartbeat, Offer, Recover, Recovered, Require, Survey
from reknit.wire.streams import Abort, Begin, Piece, Room

TOPIC: Final = "evil/x"
ABSURD: Final[tuple[Any, ...]] = (
    *(0, -1, 1, 7, (1 << 31) - 1, 1 << 32, (1 << 63) - 1, (1 << 64) - 1, -(1 << 63)),
    *(0.0, -1.0, 1e308, float("nan"), float("inf"), True, None),
    *("", "evil/**", "evil//x", "/", "evil/\0", "x" * 3000, "\ufffe", "evil/é"),
    *(b"", b"\0" * 16, b"\xff" * 15, b"x" * 3000),
    *([], {}, [[]], [0, -1], [[1, 0]], [[5, 1 << 62]], [["evil/x", b"\0" * 16, 9, 3]], {"evil": {"": []}}),
)
"""What a field may be replaced with. No pattern here matches a topic of others."""


def tcp_messages(rng: Random) -> list[bytes]:
    """Valid frames for a node, by a client with a name of its own. The greeting comes first."""
    source, batch = rng.randbytes(16), None
    payloads = [rng.randbytes(rng.randrange(50)) for _ in range(rng.randint(1, 5))]
    batch = bytes(Batch.build(source, TOPIC, rng.choice((1, 1, 1, 6, 1 << 40)), payloads, time_us=1).data)
    sub, name = rng.randrange(3), rng.choice(("", "evil", f"evil {rng.randrange(9)}"))
    row = DispositionRow(TOPIC, source, 1, 3, rng.randrange(7))
    held = [Held(TOPIC, source, 1, 3)] if rng.random() < 0.3 else []
    messages: list[Message] = [
        Ping(),
        Pong(),
        Declare(source, TOPIC),
        Ack(source, 4),
        Subscribe(sub, "evil/**", name, Start(history=rng.random() < 0.5), 1000, held),
        Subscribe(sub, "plant/**", "", Start(history=True), 1 << 20),
        Subscribe(sub, "evil/**", "", Start(), 1000, held, queue=f"evil {rng.randrange(3)}", process=source),
        Subscribe(sub, "evil/**", name, Start(history=True, count=2, age_s=9.0), 1000, held, process=source),
        Credit(sub, 1 << 20, rng.random() < 0.5),
        Holding(sub, held),
        Settle(sub, 1, [row], [Rejection(batch, 3, "no", 1)] if rng.random() < 0.3 else []),
        Unsubscribe(sub, rng.random() < 0.5),
        Want(source, TOPIC, True, 1, 0),
        Begin(source, TOPIC, False, batch),
        Piece(sub, source, 0, b"piece", rng.random() < 0.5),
        Room(sub, source, 1000),
        Abort(sub, source, "no more"),
        Recover(1, TOPIC, source, [(1, 4)], 1000),
        Recovered(1, len(batch), [(1, 2)]),
        Survey(1, "evil/**"),
        Heartbeat(TOPIC, source, 9),
        Offer("evil/**", source),
        Require(source, TOPIC),
        Skip(TOPIC, source, 1, 4, "gone"),
        Via(source, ["evil"]),
        Beat([("evil", 1, 1, 1)]),
        AskWhole("evil"),
        Forward(len(batch), "evil", "any", True, 1, 0, []),
        Returned([]),
        Pull("", 0),
        Carry(len(batch), 0, [(source, "evil")]),
        Got(1),
        Ask(1, rng.choice(("status", "ledger", "topics", "evil"))),
        Bye(0, "evil"),
    ]
    found = [encode(message) for message in rng.sample(messages, rng.randint(1, 8))]
    return [encode(Hello(1, "evil")), *found, batch]


def mutate_frame(rng: Random, frame: bytes) -> bytes:
    """Change a frame so that its checksum still holds: a field of a message, or bytes of a batch."""
    if frame[2] == KIND_MESSAGE and rng.random() < 0.8:
        size = int.from_bytes(frame[PREFIX_BYTES : PREFIX_BYTES + 4], "little")
        body = msgspec.msgpack.decode(frame[PREFIX_BYTES + 8 : PREFIX_BYTES + 8 + size])
        return wrap(KIND_MESSAGE, msgspec.msgpack.encode(_mutate(rng, body)))
    changed = bytearray(frame)
    for _ in range(rng.randint(1, 4)):
        changed[rng.randrange(PREFIX_BYTES, len(changed))] = rng.choice(
            (0, 1, 0x7F, 0xFF, rng.randrange(256))
        )
    lead = LEAD.unpack_from(changed)
    PREFIX.pack_into(changed, 0, *lead, checksum(changed))
    return bytes(changed)


def _mutate(rng: Random, body: Any) -> Any:
    """Replace, add or remove one part, at any depth. The kind of the message stays."""
    if isinstance(body, list) and body:
        at = rng.randrange(1, len(body)) if len(body) > 1 else 0
        if isinstance(body[at], list) and body[at] and rng.random() < 0.5:
            body[at] = _mutate(rng, [0, *body[at]])[1:]
        elif at and rng.random() < 0.1:
            del body[at]
        elif rng.random() < 0.1:
            body.append(rng.choice(ABSURD))
        elif at:
            body[at] = rng.choice(ABSURD)
    return body


def http_requests(rng: Random) -> list[bytes]:
    """Valid requests, one after the other on a connection."""
    form = rng.choice(
        (b"kn_to=/evil/x;kn_payload=hi", b"do_method=batch&kn_batch=kn_to%3D%2Fevil%2Fx", b"%zz=%f")
    )
    event = b'{"specversion":"1.0","id":"1","source":"up://evil/10/1/8001","type":"up-pub.v1","data":1}'
    upgrade = b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    upgrade += b"Sec-WebSocket-Key: ZXZpbGV2aWxldmlsZXZpbA==\r\n"
    ask = [
        _get(b"/"),
        _get(b"/kn?do_method=whoami"),
        _get(b"/kn?kn_from=/evil/x;kn_response_format=" + rng.choice((b"simple", b"js", b"evil"))),
        _get(b"/kn?kn_from=/evil/x;do_since_checkpoint=" + rng.choice((b"1-2-3", b"f" * 70, b"\xff"))),
        _get(b"/kn?do_method=route;kn_from=/evil/x;kn_to=/evil/y;do_max_age=" + rng.choice((b"9", b"nan"))),
        _get(b"/sse?topic=" + rng.choice((b"evil/**", b"plant/**", b"//", b""))),
        _get(b"/sse?topic=evil/x", b"Last-Event-ID: 0-99999999-9999999\r\n"),
        _get(b"/ws?topic=evil/**&format=" + rng.choice((b"json", b"binary", b"x")), upgrade)
        + rng.randbytes(rng.randrange(40)),
        _post(b"/kn", form),
        _post(b"/cloudevents", event, b"Content-Type: application/cloudevents+json\r\n"),
        _post(b"/cloudevents", b"[" + event + b"]", b"Content-Type: application/cloudevents-batch+json\r\n"),
        b"POST /kn HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nkn_to\r\nffffffffffffff\r\n",
        b"POST /kn HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\nkn_to=/evil/x",
        b"OPTIONS /kn HTTP/1.0\r\nOrigin: evil\r\nAccess-Control-Request-Method: X\r\n\r\n",
        b"BREW /kn HTTP/1.1\r\n" + b"X: y\r\n" * rng.choice((1, 3000)) + b"\r\n",
    ]
    return rng.choices(ask, k=rng.choice((1, 2, 80)))


def _get(path: bytes, headers: bytes = b"") -> bytes:
    return b"GET " + path + b" HTTP/1.1\r\nHost: evil\r\n" + headers + b"\r\n"


def _post(path: bytes, body: bytes, headers: bytes = b"") -> bytes:
    return b"POST %b HTTP/1.1\r\n%bContent-Length: %d\r\n\r\n%b" % (path, headers, len(body), body)


def amqp_frames(rng: Random) -> list[bytes]:
    """The frames of a client that opens a connection, attaches a sender and a receiver, and sends."""
    terminus = _list(0x28, _text("evil/x"))
    target = _list(0x29, _text("evil/x"))
    role = rng.randrange(2)
    handle = rng.choice((0, 1, 0xFFFFFFFF))
    attach = [
        _text(f"link {role}"),
        _uint(handle),
        b"\x41" if role else b"\x42",
        b"\x40",
        b"\x40",
        terminus,
        target,
    ]
    frames = [
        _frame(0x10, _list(0x10, _text("evil"))),
        _frame(0x11, _list(0x11, b"\x40", _uint(0), _uint(100), _uint(100))),
        _frame(0x12, _list(0x12, *attach, b"\x40", b"\x40", *([] if role else [_uint(0)]))),
        _frame(
            0x13, _list(0x13, _uint(0), _uint(100), _uint(0), _uint(100), _uint(handle), _uint(0), _uint(10))
        ),
        _frame(
            0x14, _list(0x14, _uint(handle), _uint(0), b"\xa0\x01a", _uint(0)) + b"\x00\x53\x77\xa1\x02hi"
        ),
        _frame(
            0x15,
            _list(0x15, b"\x41", _uint(0), _uint(0xFFFFFFFF), b"\x41", _list(rng.choice((0x23, 0x24, 0x27)))),
        ),
        _frame(0x16, _list(0x16, _uint(handle), b"\x41")),
        _frame(0x17, _list(0x17)),
    ]
    sasl = b"AMQP\x03\x01\x00\x00" + _frame(0x41, _list(0x41, b"\xa3\x09ANONYMOUS"), kind=1)
    return [sasl, b"AMQP\x00\x01\x00\x00", *frames]


def _frame(code: int, body: bytes, kind: int = 0) -> bytes:
    return (len(body) + 8).to_bytes(4, "big") + bytes((2, kind, 0, 0)) + body


def _list(code: int, *fields: bytes) -> bytes:
    body = b"".join(fields)
    return (
        bytes((0x00, 0x53, code, 0xD0))
        + (len(body) + 4).to_bytes(4, "big")
        + len(fields).to_bytes(4, "big")
        + body
    )


def _text(text: str) -> bytes:
    return b"\xa1" + bytes((len(text),)) + text.encode()


def _uint(number: int) -> bytes:
    return b"\x70" + number.to_bytes(4, "big")


def mutate_bytes(rng: Random, data: bytes) -> bytes:
    """Change, cut or double some bytes."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(changed))
        match rng.randrange(4):
            case 0:
                changed[at] = rng.choice((0, 0x40, 0x7F, 0xFF, rng.randrange(256)))
            case 1:
                changed[at : at + rng.randrange(1, 9)] = b""
            case 2:
                changed[at:at] = rng.randbytes(rng.randrange(1, 9))
            case _:
                changed[at:at] = changed[at : at + 20]
        changed = changed or bytearray(b"\0")
    return bytes(changed)
