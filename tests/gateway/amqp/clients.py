"""Foreign AMQP clients for tests: proton's clients, each in its own thread, and a node to talk to."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("proton", reason="python-qpid-proton could not be built on this machine")

from proton import Condition, Data, Delivery, Message, symbol
from proton.handlers import MessagingHandler
from proton.reactor import ApplicationEvent, Container, EventInjector, LinkOption

from reknit.config import AmqpSettings, Config, JournalSettings, NodeSettings, SecuritySettings, TopicSettings
from reknit.gateway.amqp.server import AmqpServer
from reknit.node.node import Node
from reknit.processes.process import NodeProcess
from tests.client.node_thread import serving

WAIT_S = 150.0
NAMES = {
    Delivery.ACCEPTED: "accepted",
    Delivery.RELEASED: "released",
    Delivery.REJECTED: "rejected",
    Delivery.MODIFIED: "modified",
    Delivery.RECEIVED: "received",
}


def config(
    data_dir: Path | None = None,
    topics: tuple[TopicSettings, ...] = (),
    allow: tuple[str, ...] = (),
    **amqp: Any,
) -> Config:
    """The config of a node with AMQP on a free port. With a directory, its journal is on disk."""
    journal = JournalSettings(kind="disk" if data_dir else "memory", sync=False)
    node = NodeSettings(name="test", listen=("tcp://127.0.0.1:0",), data_dir=data_dir or Path("none"))
    settings = AmqpSettings(**{"listen": "127.0.0.1:0", **amqp})
    security = SecuritySettings(allow=allow)
    return Config(node=node, journal=journal, amqp=settings, topics=topics, security=security)


@contextlib.contextmanager
def broker(settings: Config | None = None) -> Iterator[Node]:
    """A running node that serves AMQP."""
    with serving(settings or config()) as node:
        yield node


def start(node: NodeProcess, port: int) -> None:
    """Start a node's process, and return when it listens for AMQP."""
    node.start()
    deadline = time.monotonic() + WAIT_S
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        assert time.monotonic() < deadline, f"nobody listens for AMQP: {node.output()}"
        time.sleep(0.02)


def url_of(node: Node) -> str:
    return amqp_of(node).url


def amqp_of(node: Node) -> AmqpServer:
    """The node's AMQP gateway."""
    door = node.doors["amqp"]
    assert isinstance(door, AmqpServer)
    return door


class Terminus(LinkOption):  # type: ignore[misc]
    """The capabilities and durability of a terminus."""

    def __init__(self, resend: bool = False, durable: bool = False) -> None:
        self._resend, self._durable = resend, durable

    def apply(self, link: Any) -> None:
        if self._resend:
            link.target.capabilities.put_array(False, Data.SYMBOL)
            link.target.capabilities.enter()
            link.target.capabilities.put_symbol(symbol("qd.resend-released"))
            link.target.capabilities.exit()
        if self._durable:
            link.source.durability = 2
            link.source.expiry_policy = 3

    def test(self, link: Any) -> bool:
        return True


class Sent:
    """A message that was sent."""

    def __init__(self, client: Client, delivery: Any) -> None:
        self._client = client
        self.delivery = delivery
        self.states: list[str] = []
        """The states that the node gave it, in order."""
        self.is_settled = False
        self.condition: Any = None
        self.modified: tuple[bool, bool] | None = None

    @property
    def outcome(self) -> str:
        """Its outcome, once that is known."""
        self._client.wait(lambda: self.is_settled, "an outcome")
        return self.states[-1] if self.states else "none"

    def note(self, delivery: Any) -> None:
        name = NAMES.get(delivery.remote_state)
        if name and (not self.states or self.states[-1] != name):
            self.states.append(name)
        remote = delivery.remote
        if name == "rejected":
            self.condition = remote.condition
        if name == "modified":
            self.modified = (remote.failed, remote.undeliverable)
        self.is_settled = self.is_settled or delivery.settled


class Sender:
    """A client's sender."""

    def __init__(self, client: Client, link: Any) -> None:
        self._client, self.link = client, link

    def send(self, body: Any = b"x", **fields: Any) -> Sent:
        """Send as soon as there is credit."""
        return self.send_many([body], **fields)[0]

    def send_many(self, bodies: list[Any], **fields: Any) -> list[Sent]:
        messages = [body if isinstance(body, Message) else Message(body=body, **fields) for body in bodies]
        sent: list[Sent] = []
        while len(sent) < len(messages):
            self._client.wait(lambda: self.link.credit > 0, "credit")
            sent += self._client.call(partial(self._send, messages[len(sent) :]))
        return sent

    def _send(self, messages: list[Any]) -> list[Sent]:
        """Send as many as there is credit for."""
        return [self._client.track(self.link.send(one)) for one in messages[: self.link.credit]]

    def stream(self, message: Message, piece_bytes: int) -> Sent:
        """Send a message in pieces."""
        self._client.wait(lambda: self.link.credit > 0, "credit")
        data = bytes(message.encode())
        delivery = self._client.call(lambda: self.link.delivery(self.link.delivery_tag()))
        sent: Sent = self._client.call(lambda: self._client.track(delivery))
        for at in range(0, len(data), piece_bytes):
            self._client.call(partial(self.link.stream, data[at : at + piece_bytes]))
        self._client.call(self.link.advance)
        return sent

    @property
    def credit(self) -> int:
        return int(self._client.call(lambda: self.link.credit))

    def close(self) -> None:
        self._client.call(self.link.close)


React = Callable[[Any, Any], None] | str


class Receiver:
    """A client's receiver. `react` is an outcome for all messages, or a function of a message and its delivery."""

    def __init__(self, client: Client, link: Any, react: React) -> None:
        self._client, self.link, self._react = client, link, react
        self.messages: list[Any] = []
        self.deliveries: list[Any] = []

    @property
    def address(self) -> str:
        return str(self.link.remote_source.address)

    @property
    def bodies(self) -> list[Any]:
        return [bytes(one.body) if isinstance(one.body, memoryview) else one.body for one in self.messages]

    def arrive(self, message: Any, delivery: Any) -> None:
        self.messages.append(message)
        self.deliveries.append(delivery)
        if callable(self._react):
            self._react(message, delivery)
        else:
            say(delivery, self._react)

    def wait(self, count: int) -> list[Any]:
        """The bodies, once so many have arrived."""
        self._client.wait(lambda: len(self.messages) >= count, f"{count} messages")
        return self.bodies

    def say(self, at: int, what: str) -> None:
        self._client.call(lambda: say(self.deliveries[at], what))

    def flow(self, credit: int) -> None:
        self._client.call(lambda: self.link.flow(credit))

    def close(self) -> None:
        self._client.call(self.link.close)
        self._client.wait(lambda: self.link.state & 32, "the link's end")

    def detach(self) -> None:
        self._client.call(self.link.detach)


def say(delivery: Any, what: str) -> None:
    """Give a delivery its outcome."""
    if what == "hold":
        return
    if what == "settle":
        delivery.settle()
        return
    if what == "received":
        delivery.update(Delivery.RECEIVED)
        return
    if what == "reject":
        delivery.local.condition = Condition("amqp:not-found", "no such order")
    if what in ("modify", "undeliverable"):
        delivery.local.failed = what == "modify"
        delivery.local.undeliverable = what == "undeliverable"
    delivery.update({"accept": Delivery.ACCEPTED, "release": Delivery.RELEASED, "reject": Delivery.REJECTED,
                     "modify": Delivery.MODIFIED, "undeliverable": Delivery.MODIFIED}[what])  # fmt: skip
    delivery.settle()


class Client(MessagingHandler):  # type: ignore[misc]
    """One connection in its own thread. All its methods run on that thread."""

    def __init__(self, url: str, **options: Any) -> None:
        super().__init__(prefetch=0, auto_accept=False, auto_settle=False)
        self._news = threading.Condition()
        self._injector = EventInjector()
        self._sent: dict[Any, Sent] = {}
        self._receivers: dict[Any, Receiver] = {}
        self.errors: list[tuple[str, str]] = []
        """The conditions of links and of the connection, as (name, text)."""
        self.is_open = self.is_closed = False
        self._url, self._options = url, {"reconnect": False, **options}
        container_id = self._options.pop("container_id", None)
        self._container = Container(self)
        if container_id:
            self._container.container_id = container_id
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self.wait(lambda: self.is_open or self.is_closed, "the connection")

    def _run(self) -> None:
        try:
            self._container.run()
        finally:
            with self._news:
                self.is_closed = True
                self._news.notify_all()

    # -- from the test

    def call(self, work: Callable[[], Any]) -> Any:
        """Call a function on the client's thread, and return its result."""
        done: Future[Any] = Future()
        event = ApplicationEvent("work")
        event.work, event.done = work, done
        self._injector.trigger(event)
        return done.result(WAIT_S)

    def wait(self, is_so: Callable[[], Any], what: str) -> None:
        deadline = time.monotonic() + WAIT_S
        with self._news:
            while not is_so():  # proton does not report every change of its objects
                assert time.monotonic() < deadline, f"{what} did not come; {self.errors}"
                self._news.wait(0.05)

    def sender(self, address: str | None, resend: bool = False, **options: Any) -> Sender:
        terminus = [Terminus(resend=resend), *options.pop("options", [])]
        make = self._container.create_sender
        link = self.call(lambda: make(self.connection, address, options=terminus, **options))
        self.wait(lambda: link.state & 16 or link.state & 32, "the sender's attachment")
        return Sender(self, link)

    def receiver(
        self,
        address: str | None,
        react: React = "accept",
        credit: int = 100,
        durable: bool = False,
        **options: Any,
    ) -> Receiver:
        def make() -> Receiver:
            terminus = [Terminus(durable=durable), *options.pop("options", [])]
            context = options.pop("context", self.connection)
            link = self._container.create_receiver(context, address, options=terminus, **options)
            self._receivers[link.name] = made = Receiver(self, link, react)
            if credit:
                link.flow(credit)
            return made

        receiver: Receiver = self.call(make)
        link = receiver.link
        self.wait(lambda: link.state & 16 or link.state & 32, "the receiver's attachment")
        return receiver

    def track(self, delivery: Any) -> Sent:
        self._sent[delivery.link.name, delivery.tag] = sent = Sent(self, delivery)
        return sent

    def close(self) -> None:
        if self._thread.is_alive():
            if not self.is_closed:
                with contextlib.suppress(Exception):
                    self.call(self.connection.close)
                    self.wait(lambda: self.is_closed, "the end")
            self.call_no_wait(self._container.stop)
        self._thread.join(WAIT_S)

    def call_no_wait(self, work: Callable[[], Any]) -> None:
        event = ApplicationEvent("work")
        event.work, event.done = work, Future()
        self._injector.trigger(event)

    def cut(self) -> None:
        """Close the socket without a close frame, as a crash would."""
        self.call(lambda: self.connection.transport._selectable._delegate.shutdown(socket.SHUT_RDWR))
        self.wait(lambda: self.is_closed, "the end")
        self.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *args: object) -> None:
        self.close()

    # -- proton's side

    def on_start(self, event: Any) -> None:
        self._container.selectable(self._injector)
        self.connection = self._container.connect(self._url, **self._options)

    def on_work(self, event: Any) -> None:
        try:
            event.done.set_result(event.work())
        except Exception as error:
            event.done.set_exception(error)
        self._tell()

    def _tell(self) -> None:
        with self._news:
            self._news.notify_all()

    def on_connection_opened(self, event: Any) -> None:
        self.is_open = True
        self._tell()

    def on_message(self, event: Any) -> None:
        receiver = self._receivers.get(event.link.name)
        if receiver is not None:
            receiver.arrive(event.message, event.delivery)
        self._tell()

    def on_delivery(self, event: Any) -> None:
        delivery = event.delivery
        if delivery.link.is_sender:
            sent = self._sent.get((delivery.link.name, delivery.tag))
            if sent is not None:
                sent.note(delivery)
                if delivery.settled:
                    delivery.settle()
        self._tell()

    def _error(self, condition: Any) -> None:
        if condition is not None:
            self.errors.append((condition.name, condition.description or ""))
        self._tell()

    def on_link_error(self, event: Any) -> None:
        self._error(event.link.remote_condition)

    def on_connection_remote_close(self, event: Any) -> None:
        self._error(event.connection.remote_condition)
        event.connection.close()

    def on_connection_error(self, event: Any) -> None:
        """It was noted already."""

    def on_transport_error(self, event: Any) -> None:
        self._error(event.transport.condition)

    def on_disconnected(self, event: Any) -> None:
        self.is_closed = True
        self._tell()

    def on_transport_closed(self, event: Any) -> None:
        self.is_closed = True
        self._tell()

    def on_link_opened(self, event: Any) -> None:
        self._tell()

    def on_link_flow(self, event: Any) -> None:
        self._tell()

    def on_link_remote_close(self, event: Any) -> None:
        self._tell()
