"""Requests to the HTTP gateway whose answers are always the same, with what each has to answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

GOOD_SITE: Final = "http://good.example"
"""A site whose pages may use the nodes."""
REQUEST_BYTES_MAX: Final = 16 << 10
PIPELINED: Final = 80
"""More requests at once than a connection may send."""
_EVIL: Final = {"Origin": "http://evil.example"}
_GOOD: Final = {"Origin": GOOD_SITE}
_FETCH: Final = {"Access-Control-Request-Method": "POST"}
_UPGRADE: Final = {
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}
_BATCH: Final = {"Content-Type": "application/cloudevents-batch+json"}


class VisitedPage(NamedTuple):
    """A request, and its answer: the status, and a part of the text."""

    method: str
    path: str
    code: int
    text: str = ""
    body: str = ""
    headers: Mapping[str, str] = MappingProxyType({})


PAGES: Final = (
    VisitedPage("GET", "/", 200, "/cloudevents"),
    VisitedPage("GET", "/reknit.js", 200, "/index.js", headers=_GOOD),
    VisitedPage("GET", "/reknit/0123456789abcdef/index.js", 404, "load /reknit.js again"),
    VisitedPage("GET", "/nowhere", 404, "/nowhere does not exist"),
    VisitedPage("OPTIONS", "/kn", 204, headers=_GOOD | _FETCH),
    VisitedPage("OPTIONS", "/kn", 403, "http.origins", headers=_EVIL | _FETCH),
    VisitedPage("GET", "/kn", 200, "do_method=notify"),
    VisitedPage("GET", "/kn?do_method=whoami", 200, 'kn_userid = "anonymous"'),
    VisitedPage("GET", "/kn?do_method=noop&kn_response_format=simple", 200, "status: 200 OK"),
    VisitedPage("POST", "/kn", 200, "200 OK", "do_method=noop;kn_response_format=js"),
    VisitedPage("PUT", "/kn", 501, "use GET or POST"),
    VisitedPage("POST", "/kn", 400, "no parameters"),
    VisitedPage("POST", "/kn", 400, "simple or js", "kn_response_format=xml"),
    VisitedPage("POST", "/kn", 400, "do_method=help", "do_method=dance"),
    VisitedPage("POST", "/kn", 400, "begins or ends with a dot", "kn_to=/a/.b&kn_payload=x"),
    VisitedPage("POST", "/kn", 400, "write letters", "kn_to=/a%20b&kn_payload=x"),
    VisitedPage("POST", "/kn", 403, "can't be posted", "kn_to=/a/kn_subtopics&kn_payload=x"),
    VisitedPage("POST", "/kn", 403, "may not post", "kn_to=/reknit/a&kn_payload=x"),
    VisitedPage("POST", "/kn", 403, "http.origins", "kn_to=/a&kn_payload=x", _EVIL),
    VisitedPage("POST", "/kn", 403, "http.origins", "do_method=noop&kn_status_to=/a", _EVIL),
    VisitedPage("POST", "/kn", 403, "may not post", "do_method=noop&kn_status_to=/reknit/a"),
    VisitedPage("GET", "/kn?kn_from=/a&kn_content_filter=x", 400, "regular expression"),
    VisitedPage("GET", "/kn?kn_from=/a&do_max_age=soon", 400, "a number of seconds"),
    VisitedPage("GET", "/kn?kn_from=/a&do_max_n=-1", 400, "a whole number"),
    VisitedPage("GET", "/kn?kn_from=/a&do_since_checkpoint=x", 400, "checkpoint"),
    VisitedPage("GET", "/kn?kn_from=/a..&kn_response_format=simple", 400, "status: 400"),
    VisitedPage("POST", "/kn", 400, "a whole number", "do_method=route&kn_from=/a&kn_to=/b&do_max_n=x"),
    VisitedPage(
        "POST", "/kn", 400, "checkpoint", "do_method=route&kn_from=/a&kn_to=/b&do_since_checkpoint=x"
    ),
    VisitedPage(
        "POST", "/kn", 400, "are not sent", "do_method=route&kn_from=/a&kn_to=/b&kn_content_transform=x"
    ),
    VisitedPage("POST", "/kn", 403, "may not post", "do_method=route&kn_from=/a&kn_to=/reknit/b"),
    VisitedPage("POST", "/kn", 200, "is deleted", "do_method=route&kn_from=/a&kn_to=&kn_id=none"),
    VisitedPage("POST", "/sse?topic=a", 501, "use GET"),
    VisitedPage("GET", "/sse?topic=a//b", 400, "?topic=PATTERN"),
    VisitedPage("GET", "/ws?topic=a", 426, "request an upgrade"),
    VisitedPage("GET", "/ws?topic=a", 426, "version 13", headers=_UPGRADE | {"Sec-WebSocket-Version": "8"}),
    VisitedPage("GET", "/ws?topic=a", 400, "16 bytes", headers=_UPGRADE | {"Sec-WebSocket-Key": "eHl6"}),
    VisitedPage("GET", "/ws?topic=a", 403, "http.origins", headers=_UPGRADE | _EVIL),
    VisitedPage("GET", "/ws?topic=a//b", 400, "?topic=PATTERN", headers=_UPGRADE),
    VisitedPage("GET", "/ws?topic=a&format=xml", 400, "json or binary", headers=_UPGRADE),
    VisitedPage("GET", "/ticket", 400, "POST to get a ticket"),
    VisitedPage("POST", "/ticket", 403, "needs a token"),
    VisitedPage("POST", "/ticket", 403, "http.origins", headers=_EVIL),
    VisitedPage("GET", "/cloudevents", 400, "POST a CloudEvent"),
    VisitedPage("POST", "/cloudevents", 403, "http.origins", "{}", _EVIL),
    VisitedPage("POST", "/cloudevents", 400, "", "{}"),
    VisitedPage("POST", "/cloudevents", 400, "is not a JSON list", "{}", _BATCH),
    VisitedPage("GET", "/", 200, "/cloudevents", headers={"Upgrade": "h2c", "Connection": "Upgrade"}),
    VisitedPage("POST", "/kn", 413, "request_bytes_max", "x" * (REQUEST_BYTES_MAX + 1)),
    VisitedPage("GET", "/" + "x" * (33 << 10), 431, "too long"),
)


class BadConversation(NamedTuple):
    """Bytes that are sent on a connection, and what may have been answered when the node closes it."""

    data: bytes
    is_right: Callable[[str], bool]


BAD_CONVERSATIONS: Final = (
    BadConversation(b"NONSENSE\r\n\r\n", lambda answer: "not a valid HTTP/1 request" in answer),
    BadConversation(
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * PIPELINED,
        # those that come in pieces may all be answered in time
        lambda answer: "too many requests" in answer or answer.count("HTTP/1.1 200") == PIPELINED,
    ),
    BadConversation(b"GET / HTTP/1.1\r\nHost: x\r\n", lambda answer: not answer),
)
