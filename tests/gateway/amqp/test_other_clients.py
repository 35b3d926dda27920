"""AMQP clients of others at a node: azure-servicebus' (pure Python), uamqp (azure-uamqp-c) and proton's in C.

Each sends messages, takes them and gives outcomes, with its own framing, credit and settlement.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest

pytest.importorskip("proton", reason="python-qpid-proton could not be built on this machine")

from reknit.config import TopicSettings
from reknit.node.node import Node
from reknit.topic import Pattern
from tests.certificates import Certificates
from tests.gateway.amqp.clients import WAIT_S, Client, broker, config, url_of

TOPICS: Final = (TopicSettings(pattern=Pattern("orders/**"), distribution="balanced"),)
EXAMPLES: Final = Path("/usr/share/proton/examples/c")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    users = tmp_path_factory.mktemp("users") / "users"
    users.write_text("ann s3cret\n")
    users.chmod(0o600)
    known: dict[str, Any] = {"mechanisms": ("ANONYMOUS", "PLAIN"), "users_file": str(users)}
    with broker(config(topics=TOPICS, plain_needs_tls=False, **known)) as made:
        yield made


# -- azure-servicebus


def azure(node: Node) -> tuple[str, dict[str, Any]]:
    pytest.importorskip("azure.servicebus", reason="azure-servicebus is not installed")
    from azure.servicebus._pyamqp.authentication import SASLPlainAuth

    place = urlsplit(url_of(node))
    return f"{place.hostname}:{place.port}", {"auth": SASLPlainAuth("ann", "s3cret"), "use_tls": False}


def test_azure_sends_and_hears_outcomes(node: Node) -> None:
    host, options = azure(node)
    from azure.servicebus._pyamqp.client import SendClient
    from azure.servicebus._pyamqp.error import MessageException
    from azure.servicebus._pyamqp.message import Message, Properties

    with Client(url_of(node)) as client:
        receiver = client.receiver("orders/azure", "accept")
        with SendClient(host, "orders/azure", **options) as sender:
            sender.send_message(Message(data=[b"one"], properties=Properties(message_id="m1")))
            assert receiver.wait(1) == [b"one"]
            assert receiver.messages[0].id == "m1"
        receiver.close()
        client.receiver("orders/azure", "reject")
        with (
            SendClient(host, "orders/azure", retry_policy=_once(), **options) as sender,
            pytest.raises(MessageException, match="no such order"),
        ):
            sender.send_message(Message(data=[b"two"]))


def test_azure_receives_and_gives_outcomes(node: Node) -> None:
    host, options = azure(node)
    from azure.servicebus._pyamqp.client import ReceiveClient
    from azure.servicebus._pyamqp.error import AMQPError

    with (
        Client(url_of(node)) as client,
        ReceiveClient(host, "orders/azure-in", link_credit=10, **options) as receiver,
    ):
        while not receiver.client_ready():
            pass
        sent = client.sender("orders/azure-in").send_many([b"0", b"1", b"2"])
        taken: list[tuple[Any, Any]] = []
        while len(taken) < 3:
            receiver.do_work()
            while not receiver._received_messages.empty():  # what azure-servicebus itself reads
                taken.append(receiver._received_messages.get())
        assert [message.value for _, message in taken] == [b"0", b"1", b"2"]
        rejected = {"error": AMQPError(condition=b"app:bad", description="no good")}
        modified: dict[str, Any] = {"delivery_failed": True, "undeliverable_here": True}
        modified["message_annotations"] = {b"x-opt-why": "late"}
        for (frame, _), (outcome, fields) in zip(
            taken, (("accepted", {}), ("rejected", rejected), ("modified", modified)), strict=True
        ):
            receiver.settle_messages(frame[1], frame[2], outcome, **fields)
        assert [one.outcome for one in sent] == ["accepted", "rejected", "modified"]
        assert (sent[1].condition.name, sent[1].condition.description) == ("app:bad", "no good")
        assert sent[2].modified == (True, True)


def _once() -> Any:
    from azure.servicebus._pyamqp.error import RetryPolicy

    return RetryPolicy(retry_total=0)


# -- uamqp, which speaks TLS only


@pytest.fixture(scope="module")
def uamqp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Any, str]]:
    """The package, a node with TLS and how to authenticate there."""
    if sys.version_info >= (3, 13):
        pytest.skip("there are no wheels of uamqp for this Python")
    package = pytest.importorskip("uamqp", reason="uamqp is not installed")
    made = Certificates(tmp_path_factory.mktemp("certificates"))
    made.make("localhost")
    files: dict[str, Any] = {
        "tls_cert_file": str(made.folder / "localhost.pem"),
        "tls_key_file": str(made.folder / "localhost.key"),
    }
    with broker(config(topics=TOPICS, **files)) as secure:
        port = urlsplit(url_of(secure)).port
        yield (
            package,
            lambda: package.authentication.SASLAnonymous(
                "localhost", port=port, verify=str(made.folder / "ca.pem")
            ),
            f"amqps://localhost:{port}",
        )


def test_uamqp_sends_receives_and_gives_outcomes(uamqp: tuple[Any, Any, str]) -> None:
    package, auth, url = uamqp
    errors = package.errors
    once = errors.ErrorPolicy(max_retries=0, on_error=lambda error: errors.ErrorAction(retry=False))
    ended: list[tuple[Any, Any]] = []

    def on_complete(result: Any, error: Any) -> None:
        ended.append((result, error))

    source = f"{url}/orders/uamqp"
    with (
        package.ReceiveClient(source, auth=auth(), auto_complete=False) as receiver,
        package.SendClient(source, auth=auth(), error_policy=once) as sender,
    ):
        while not receiver.client_ready():
            pass
        messages = [package.Message(body) for body in (b"one", b"two")]
        for message in messages:
            message.on_send_complete = on_complete
        sender.queue_message(*messages)
        taken: list[Any] = []
        while len(taken) < 2:
            sender.do_work()
            taken += receiver.receive_message_batch(max_batch_size=2, timeout=100)
        assert [b"".join(one.get_data()) for one in taken] == [b"one", b"two"]
        assert taken[0].accept()
        assert taken[1].reject(condition=b"app:bad", description=b"no good")
        while len(ended) < 2:
            receiver.do_work()
            sender.do_work()
    assert sorted(result.name for result, _ in ended) == ["Error", "Ok"]
    [error] = [error for result, error in ended if result.name == "Error"]
    assert (error.condition, error.description) == (b"app:bad", b"no good")


# -- proton's C library: its own examples, as Debian packages them


def test_proton_in_c_sends_and_receives(node: Node, tmp_path: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or not (EXAMPLES / "send.c").exists():
        pytest.skip("the examples of proton's C library are not installed (libqpid-proton11-dev-examples)")
    for name in ("send", "receive"):
        words = [compiler, str(EXAMPLES / f"{name}.c"), "-o", str(tmp_path / name), "-lqpid-proton"]
        subprocess.run(words, check=True, capture_output=True, timeout=WAIT_S)
    place = urlsplit(url_of(node))
    where = (str(place.hostname), str(place.port), "orders/c", "100")
    with subprocess.Popen([tmp_path / "receive", *where], stdout=subprocess.PIPE, text=True) as receive:
        done = subprocess.run(
            [tmp_path / "send", *where], capture_output=True, text=True, timeout=WAIT_S, check=True
        )
        assert "100 messages sent and acknowledged" in done.stdout
        heard, _ = receive.communicate(timeout=WAIT_S)
    assert heard.count("sequence") == 100
    assert receive.returncode == 0
