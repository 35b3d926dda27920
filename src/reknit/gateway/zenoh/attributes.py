"""What a sample has beside its payload, as headers and attributes of an event, and back.

    Zenoh                   reknit
    timestamp               the event's time
    priority                the event's priority: BACKGROUND is CS0 … REAL_TIME is CS6
    encoding                header `zenoh-encoding`, unless it is `zenoh/bytes`
    delete                  header `zenoh-kind: delete`
    congestion control      header `zenoh-congestion-control: block`, unless samples may be dropped
    express                 header `zenoh-express: true`
    attachment              header `zenoh-attachment`, base64; one of a reknit gateway becomes the headers that it holds

The other headers of an event become an attachment: Zenoh's serialized map of text.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

import zenoh

from reknit import environment
from reknit.batch import Batch
from reknit.gateway.zenoh.samples import Origin, ZenohSample
from reknit.gateway.zenoh.serialized_map import read_map

KIND: Final = "zenoh-kind"
ENCODING: Final = "zenoh-encoding"
ATTACHMENT: Final = "zenoh-attachment"
CONGESTION: Final = "zenoh-congestion-control"
EXPRESS: Final = "zenoh-express"
SOURCE: Final = "reknit-source"
SEQ: Final = "reknit-seq"
ENCODING_BYTES_MAX: Final = 255
"""Zenoh's library panics at a longer one, and its connections do not survive that."""
SECONDS_MAX: Final = (1 << 32) - 1
"""Zenoh's timestamps have 32 bits for seconds: up to 2106. The library panics at a later one."""
OURS: Final = frozenset((KIND, ENCODING, ATTACHMENT, CONGESTION, EXPRESS))
PLAIN_ENCODING: Final = "zenoh/bytes"
PRIORITIES: Final = (
    zenoh.Priority.BACKGROUND,
    zenoh.Priority.DATA_LOW,
    zenoh.Priority.DATA,
    zenoh.Priority.DATA_HIGH,
    zenoh.Priority.INTERACTIVE_LOW,
    zenoh.Priority.INTERACTIVE_HIGH,
    zenoh.Priority.REAL_TIME,
)
"""By the event's priority, CS0 to CS6, as uProtocol maps them."""
LEVELS: Final = {str(priority): level for level, priority in enumerate(PRIORITIES)}
DATA: Final = LEVELS[str(zenoh.Priority.DATA)]
Headers = dict[str, str]


def read_sample(sample: zenoh.Sample) -> ZenohSample:
    """A sample as a value of our own."""
    info, stamp = sample.source_info, sample.timestamp
    time_us = int(stamp.get_time().timestamp() * 1e6) if stamp is not None else environment.time_us()
    origin = Origin(str(info.source_id.zid), int(info.source_id.eid)) if info is not None else None
    sn = int(info.source_sn) if info is not None else 0
    level = LEVELS.get(str(sample.priority), DATA)
    payload = sample.payload.to_bytes()
    return ZenohSample(str(sample.key_expr), payload, time_us, origin, sn, _headers(sample), level)


def _headers(sample: zenoh.Sample) -> Headers:
    headers: Headers = {}
    if sample.kind == zenoh.SampleKind.DELETE:
        headers[KIND] = "delete"
    if (encoding := str(sample.encoding)) != PLAIN_ENCODING:
        headers[ENCODING] = encoding
    if sample.congestion_control == zenoh.CongestionControl.BLOCK:
        headers[CONGESTION] = "block"
    if sample.express:
        headers[EXPRESS] = "true"
    if (attachment := sample.attachment) is not None:
        headers[ATTACHMENT] = base64.b64encode(attachment.to_bytes()).decode()
    return headers


def unpack_headers(headers: Mapping[str, str]) -> Headers:
    """The headers of a reknit gateway's sample, of which some are in its attachment."""
    found = dict(headers)
    packed = found.pop(ATTACHMENT, None)
    if packed is None:
        return found
    try:
        inner = read_map(base64.b64decode(packed))
    except ValueError:
        return dict(headers)
    return {**inner, **found}


Put = tuple[bytes, bool, bool, dict[str, Any]]
"""A payload, whether it is a delete, whether it may be dropped, and the options of the call that puts it."""


def puts_of(batch: Batch) -> Iterator[Put]:
    """How to put each event of a batch: what its headers and time say."""
    columns = batch.columns()
    times, headers = columns.get("time"), columns.get("headers")
    for index, payload in enumerate(batch.payloads()):
        own: Headers = (headers[index] if headers is not None else None) or {}
        options = _options(own) if own else dict[str, Any]()
        time_us = times[index] if times else batch.head.time_us
        if time_us < SECONDS_MAX * 1_000_000:
            options["timestamp"] = _timestamp(batch.source, time_us, batch.first + index)
        yield payload, own.get(KIND) == "delete", own.get(CONGESTION) == "drop", options


def _options(headers: Headers) -> dict[str, Any]:
    options: dict[str, Any] = {}
    encoding = headers.get(ENCODING, "")
    is_long = len(encoding.encode()) > ENCODING_BYTES_MAX
    if encoding and not is_long and headers.get(KIND) != "delete":
        options["encoding"] = encoding
    if ATTACHMENT in headers:
        with suppress(ValueError):
            options["attachment"] = base64.b64decode(headers[ATTACHMENT], validate=True)
    elif other := {
        name: value for name, value in headers.items() if name not in OURS or (is_long and name == ENCODING)
    }:
        options["attachment"] = zenoh.ext.z_serialize(other)
    return options


def _timestamp(source: bytes, time_us: int, seq: int) -> zenoh.Timestamp:
    """An event's time as Zenoh's. Events of one microsecond keep their order: storages drop equal timestamps."""
    seconds, micros = divmod(time_us, 1_000_000)
    return zenoh.Timestamp(
        zenoh.NTP64(seconds, micros * 1_000 + seq % 1_000), source if any(source) else b"\1"
    )
