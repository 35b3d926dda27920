"""Every error that reknit raises, by blame.

    ReknitError
    ├── LocalError              the caller made a mistake; fix the call
    │   ├── InvalidTopic        (also ValueError) not a valid topic or pattern
    │   ├── InvalidAddress      (also ValueError) not a valid uProtocol address
    │   ├── InvalidAttributes   (also ValueError) an event's attributes do not fit its type
    │   ├── InvalidConfig       (also ValueError) a setting is unknown or its value is not allowed
    │   ├── InvalidCheckpoint   (also ValueError) not the text of a checkpoint
    │   ├── InvalidPayload      (also TypeError) a value that is no payload, and there is no codec for it
    │   ├── TooLarge            (also ValueError) larger than a limit allows
    │   ├── Full                a limit was reached and the caller chose not to wait
    │   ├── NotOpen             used before its `async with`
    │   ├── Closed              used after it was closed
    │   └── NotConnected        (also ConnectionError) there is no connection to use
    │       └── TlsFailed       the TLS handshake failed, or a certificate can't be verified
    ├── RemoteError             the peer broke the protocol, or refused
    │   ├── MalformedFrame      received bytes are not a frame
    │   ├── VersionMismatch     no version of the protocol in common
    │   ├── Aborted             a stream broke off; discard its chunks
    │   └── Refused             the peer answered with a code other than OK
    │       └── RequestFailed   a request was answered with such a code, or not at all
    ├── Undelivered             no subscriber accepted an event whose publisher asked for its outcome
    │   ├── Released            not processed; publish it again at will
    │   ├── Rejected            a subscriber refused it permanently
    │   └── Modified            processing failed, or is in doubt: it may have been processed
    ├── Gone                    (also LookupError) retention has removed what was asked for
    ├── TooFewCopies            stored, but by fewer caches than the publisher wants
    └── JournalError            the journal could not read or write
        ├── JournalFull         no room left; nothing staged was lost
        ├── JournalCorrupt      stored bytes are damaged
        └── JournalLocked       another process has the journal open

A bad network is an outcome, not an exception. Each error has its facts as attributes, and as `args`, so that it survives
pickling into another process. Its text says what is wrong, where, and what to do.
"""

from __future__ import annotations

from reknit.outcome import code_name

__all__ = [
    "Aborted", "Closed", "Full", "Gone", "InvalidAddress", "InvalidAttributes", "InvalidCheckpoint", "InvalidConfig",
    "InvalidPayload", "InvalidTopic", "JournalCorrupt", "JournalError", "JournalFull", "JournalLocked", "LocalError",
    "MalformedFrame", "Modified", "NotConnected", "NotOpen", "Refused", "Rejected", "ReknitError", "Released",
    "RemoteError", "RequestFailed", "TlsFailed", "TooFewCopies", "TooLarge", "Undelivered", "VersionMismatch",
]  # fmt: skip

_SHOWN_CHARS_MAX = 80


def _shown(text: str) -> str:
    """Quote a caller's or a peer's text, shortened so that a hostile text can't flood a log."""
    if len(text) <= _SHOWN_CHARS_MAX:
        return repr(text)
    return f"{text[:_SHOWN_CHARS_MAX]!r}… ({len(text)} characters)"


class ReknitError(Exception):
    """The base of all errors that reknit raises.

    >>> issubclass(Gone, ReknitError) and issubclass(InvalidTopic, ReknitError)
    True
    """


class LocalError(ReknitError):
    """The caller made a mistake, or reached a limit. The same call will fail again until that changes.

    >>> issubclass(Full, LocalError)
    True
    """


class _InvalidText(LocalError, ValueError):
    kind = ""

    def __init__(self, text: str, why: str) -> None:
        super().__init__(text, why)
        self.text, self.why = text, why

    def __str__(self) -> str:
        return f"{self.kind} {_shown(self.text)} {self.why}"


class InvalidTopic(_InvalidText):
    """A text is not a valid topic or pattern.

    >>> print(InvalidTopic("a//b", "has an empty segment; write one '/' between segments"))
    topic 'a//b' has an empty segment; write one '/' between segments
    """

    def __init__(self, topic: str, why: str, kind: str = "topic") -> None:
        super().__init__(topic, why)
        self.args = (topic, why, kind)
        self.topic, self.kind = topic, kind


class InvalidAddress(_InvalidText):
    """A text is not a valid uProtocol address, or it has wildcards where they are not allowed.

    >>> print(InvalidAddress("/1/1", "has 2 parts; write /ENTITY/VERSION/RESOURCE"))
    address '/1/1' has 2 parts; write /ENTITY/VERSION/RESOURCE
    """

    kind = "address"


class InvalidAttributes(LocalError, ValueError):
    """An event's uProtocol attributes do not fit its type.

    >>> print(InvalidAttributes("ttl", "of a request must be more than 0"))
    attribute ttl of a request must be more than 0
    """

    def __init__(self, name: str, why: str) -> None:
        super().__init__(name, why)
        self.name, self.why = name, why

    def __str__(self) -> str:
        return f"attribute {self.name} {self.why}"


class InvalidConfig(LocalError, ValueError):
    """A setting is unknown, or its value is not allowed; or a file can't be read.

    >>> print(InvalidConfig("journal.kind", "reknit.toml", "must be 'disk' or 'memory', not 'tape'"))
    setting journal.kind (from reknit.toml) must be 'disk' or 'memory', not 'tape'
    """

    def __init__(self, setting: str, origin: str, why: str) -> None:
        super().__init__(setting, origin, why)
        self.setting, self.origin, self.why = setting, origin, why

    def __str__(self) -> str:
        what = f"setting {self.setting} (from {self.origin})" if self.setting else f"config {self.origin}"
        return f"{what} {self.why}"


class InvalidCheckpoint(_InvalidText):
    """A text is not the text of a checkpoint.

    >>> print(InvalidCheckpoint("oops", "does not begin with 'c1.'; copy the whole text"))
    checkpoint 'oops' does not begin with 'c1.'; copy the whole text
    """

    kind = "checkpoint"


class InvalidPayload(LocalError, TypeError):
    """A value can't be a payload. `value` is that value.

    >>> print(InvalidPayload({"temp": 21.5}))
    Invalid payload {'temp': 21.5} (dict): pass bytes or str, or choose a codec, as in codec=JSON
    """

    def __init__(self, value: object, why: str = "") -> None:
        super().__init__(value, why)
        self.value = value
        self.why = why or "pass bytes or str, or choose a codec, as in codec=JSON"

    def __str__(self) -> str:
        shown = repr(self.value)
        if len(shown) > _SHOWN_CHARS_MAX:
            shown = f"{shown[:_SHOWN_CHARS_MAX]}…"
        return f"Invalid payload {shown} ({type(self.value).__name__}): {self.why}"


class TooLarge(LocalError, ValueError):
    """Something is larger than a limit allows. Waiting does not help.

    >>> print(TooLarge("a payload of 20 bytes on 'plant/temp'", 10, "limits.payload_bytes_max"))
    too large: a payload of 20 bytes on 'plant/temp'; limits.payload_bytes_max allows 10, send less or raise it
    """

    def __init__(self, what: str, allowed: int, setting: str) -> None:
        super().__init__(what, allowed, setting)
        self.what, self.allowed, self.setting = what, allowed, setting

    def __str__(self) -> str:
        return f"too large: {self.what}; {self.setting} allows {self.allowed}, send less or raise it"


class Full(LocalError):
    """A limit was reached, and the caller chose not to wait.

    >>> print(Full("16777216 bytes are waiting for an ack", "limits.publish_window_bytes"))
    full: 16777216 bytes are waiting for an ack; wait and try again, or raise limits.publish_window_bytes
    """

    def __init__(self, limit: str, setting: str) -> None:
        super().__init__(limit, setting)
        self.limit, self.setting = limit, setting

    def __str__(self) -> str:
        return f"full: {self.limit}; wait and try again, or raise {self.setting}"


class NotOpen(LocalError):
    """An object was used without the `async with` or `with` that opens it.

    >>> print(NotOpen("the session"))
    the session is not open; use it in an `async with` statement, or in a `with` statement if it is a blocking one
    """

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what

    def __str__(self) -> str:
        do = "use it in an `async with` statement, or in a `with` statement if it is a blocking one"
        return f"{self.what} is not open; {do}"


class Closed(LocalError):
    """An object was used after it was closed.

    >>> print(Closed("publisher on 'plant/temp'"))
    publisher on 'plant/temp' is closed; open a new one
    """

    def __init__(self, what: str, do: str = "open a new one") -> None:
        super().__init__(what, do)
        self.what, self.do = what, do

    def __str__(self) -> str:
        return f"{self.what} is closed; {self.do}"


class NotConnected(LocalError, ConnectionError):
    """The call needs a connection now, and there is none.

    >>> print(NotConnected("tcp://127.0.0.1:7440", "connection refused"))
    not connected to tcp://127.0.0.1:7440: connection refused; check that a node listens there, or wait for it
    """

    def __init__(self, url: str, why: str) -> None:
        super().__init__(url, why)
        self.url, self.why = url, why

    def __str__(self) -> str:
        return f"not connected to {self.url}: {self.why}; check that a node listens there, or wait for it"


class TlsFailed(NotConnected):
    """There is no connection, because the two sides did not agree on TLS: most often a certificate is the cause.

    >>> print(TlsFailed("tls://plant:7441", "its certificate has expired; renew it on the node"))
    no TLS connection to tls://plant:7441: its certificate has expired; renew it on the node
    """

    def __str__(self) -> str:
        return f"no TLS connection to {self.url}: {self.why}"


class RemoteError(ReknitError):
    """The peer broke the protocol, or refused. The caller's arguments are not the cause.

    >>> issubclass(Refused, RemoteError)
    True
    """


class MalformedFrame(RemoteError):
    """Received bytes are not a valid frame.

    >>> print(MalformedFrame("length 12 is not a multiple of 8", "byte 4"))
    malformed frame: length 12 is not a multiple of 8, at byte 4; the sender is not reknit or is broken
    """

    def __init__(self, what: str, where: str) -> None:
        super().__init__(what, where)
        self.what, self.where = what, where

    def __str__(self) -> str:
        return f"malformed frame: {self.what}, at {self.where}; the sender is not reknit or is broken"


class VersionMismatch(RemoteError):
    """This side and the peer have no version of the protocol in common.

    >>> print(VersionMismatch(ours=1, theirs=3))
    we speak protocol version 1, the peer speaks 3; upgrade our side
    """

    def __init__(self, ours: int, theirs: int) -> None:
        super().__init__(ours, theirs)
        self.ours, self.theirs = ours, theirs

    def __str__(self) -> str:
        side = "our" if self.ours < self.theirs else "the peer's"
        return f"we speak protocol version {self.ours}, the peer speaks {self.theirs}; upgrade {side} side"


class Refused(RemoteError):
    """The peer answered with a google.rpc code other than OK.

    >>> print(Refused(7, "may not publish on 'plant/temp'"))
    refused by the peer with PERMISSION_DENIED: may not publish on 'plant/temp'
    """

    def __init__(self, code: int, text: str) -> None:
        super().__init__(code, text)
        self.code, self.text = int(code), text

    def __str__(self) -> str:
        return f"refused by the peer with {code_name(self.code)}: {self.text}"


class RequestFailed(Refused):
    """A handler or a node answered a request with a google.rpc code other than OK, or nobody answered it.

    >>> print(RequestFailed(14, "nobody serves it", "up://vcu/10/1/2"))
    the request to up://vcu/10/1/2 failed with UNAVAILABLE: nobody serves it
    """

    def __init__(self, code: int, text: str, address: str, payload: bytes = b"") -> None:
        super().__init__(code, text)
        self.args = (code, text, address)
        self.address, self.payload = address, payload

    def __str__(self) -> str:
        return f"the request to {self.address} failed with {code_name(self.code)}: {self.text}"


class Aborted(RemoteError):
    """A stream broke off. The chunks that arrived are not an event: discard them.

    >>> print(Aborted("films/new", "0a" * 16, "its publisher gave it up"))
    the stream 0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a on 'films/new' was aborted: its publisher gave it up
    """

    def __init__(self, topic: str, source: str, text: str) -> None:
        super().__init__(topic, source, text)
        self.topic, self.source, self.text = topic, source, text

    def __str__(self) -> str:
        return f"the stream {self.source} on {_shown(self.topic)} was aborted: {self.text}"


class Undelivered(ReknitError):
    """Events `[start, stop)` of a source (as hex) were not accepted, and their publisher asked for outcomes.

    >>> print(Undelivered("orders", "0a" * 16, 7, 8, "none", 5, "north", "shop", 2))
    undelivered: [7, 8) of 0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a on 'orders': none, NOT_FOUND, at shop on north, 2 attempts
    """

    word = "undelivered"

    def __init__(
        self, topic: str, source: str, start: int, stop: int, text: str = "", code: int = 0, node: str = "",
        path: str = "", attempts: int = 0,
    ) -> None:  # fmt: skip
        super().__init__(topic, source, start, stop, text, code, node, path, attempts)
        self.topic, self.source, self.start, self.stop = topic, source, start, stop
        self.text, self.code, self.node, self.path, self.attempts = text, code, node, path, attempts

    def __str__(self) -> str:
        where = f", at {self.path} on {self.node}" if self.path else f", on {self.node}" if self.node else ""
        what = f"[{self.start}, {self.stop}) of {self.source} on {_shown(self.topic)}"
        said = (f": {self.text}" if self.text else "") + (f", {code_name(self.code)}" if self.code else "")
        tries = "1 attempt" if self.attempts == 1 else f"{self.attempts} attempts"
        return f"{self.word}: {what}{said}{where}, {tries}"


class Released(Undelivered):
    """No subscriber processed it: every subscriber released it, or there was none.

    >>> print(Released("orders", "0a" * 16, 7, 8, attempts=3))
    released: [7, 8) of 0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a on 'orders', 3 attempts
    """

    word = "released"


class Rejected(Undelivered):
    """A subscriber refused it permanently.

    >>> print(Rejected("orders", "0a" * 16, 7, 8, "not an order", attempts=1))
    rejected: [7, 8) of 0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a on 'orders': not an order, 1 attempt
    """

    word = "rejected"


class Modified(Undelivered):
    """Processing failed, or is in doubt: a path broke while it was in flight, and it may have been processed.

    >>> print(Modified("orders", "0a" * 16, 7, 8, "in doubt", attempts=1))
    modified: [7, 8) of 0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a on 'orders': in doubt, 1 attempt
    """

    word = "modified"


class Gone(ReknitError, LookupError):
    """Retention has removed what was asked for; `first_held` is the first place to continue from.

    >>> print(Gone(1201))
    gone: retention removed everything before 1201; continue from 1201, or read the archive
    """

    def __init__(self, first_held: int, what: str = "") -> None:
        super().__init__(first_held, what)
        self.first_held, self.what = first_held, what

    def __str__(self) -> str:
        of, held = f" of {self.what}" if self.what else "", self.first_held
        return (
            f"gone: retention removed everything{of} before {held}; continue from {held}, or read the archive"
        )


class TooFewCopies(ReknitError):
    """Events are stored by fewer caches than their publisher wants (`stored_by`).

    >>> print(TooFewCopies("plant/temp", 7, 1, 3))
    events on 'plant/temp' from seq 7 on are stored 1 time, not 3 times; start relays or caches, or lower stored_by
    """

    def __init__(self, topic: str, first: int, copies: int, wanted: int) -> None:
        super().__init__(topic, first, copies, wanted)
        self.topic, self.first, self.copies, self.wanted = topic, first, copies, wanted

    def __str__(self) -> str:
        times = f"{self.copies} time{'' if self.copies == 1 else 's'}"
        return (
            f"events on {self.topic!r} from seq {self.first} on are stored {times}, not {self.wanted} times; "
            "start relays or caches, or lower stored_by"
        )


class JournalError(ReknitError):
    """The journal could not read or write.

    >>> print(JournalError("fdatasync failed: I/O error", "data/log/0.log"))
    journal: fdatasync failed: I/O error, at data/log/0.log; check the disk, then open it again
    """

    do = "check the disk, then open it again"

    def __init__(self, what: str, where: str = "") -> None:
        super().__init__(what, where)
        self.what, self.where = what, where

    def __str__(self) -> str:
        at = f", at {self.where}" if self.where else ""
        return f"journal: {self.what}{at}; {self.do}"


class JournalFull(JournalError):
    """There is no room left. Everything staged stays staged, and is written when there is room again.

    >>> print(JournalFull("no space left on device", "data/log"))
    journal: no space left on device, at data/log; free space or lower retention; writing resumes by itself
    """

    do = "free space or lower retention; writing resumes by itself"


class JournalCorrupt(JournalError):
    """Stored bytes are damaged before the tail. (Opening cuts off a torn tail; that is not an error.)

    >>> print(JournalCorrupt("data/log/4096.log", 512, "checksum does not match"))
    journal: checksum does not match, at data/log/4096.log byte 512; restore the file, or move it away
    """

    do = "restore the file, or move it away"

    def __init__(self, path: str, offset: int, why: str) -> None:
        super().__init__(why, f"{path} byte {offset}")
        self.args = (path, offset, why)
        self.path, self.offset, self.why = path, offset, why


class JournalLocked(JournalError):
    """Another process has the journal open for writing.

    >>> print(JournalLocked("data"))
    journal: in use by another process, at data; stop it, change node.data_dir, or open a reader
    """

    do = "stop it, change node.data_dir, or open a reader"

    def __init__(self, path: str) -> None:
        super().__init__("in use by another process", path)
        self.args, self.path = (path,), path
