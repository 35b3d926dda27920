"""Clients over AMQP 1.0 with Qpid Proton: a sender and a durable receiver.

amqp send HOST:PORT NAME TOPIC RATE RECORD
amqp receive HOST:PORT NAME PATTERN RECORD
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from proton import Message, ProtonException, Timeout
from proton.reactor import Container, DurableSubscription
from proton.utils import BlockingConnection, SendException

from reknit.testing.chaos.record import DONE, Published, RecordFile, parse, payload

AGAIN_S = 0.5
ANSWER_S = 20.0
POLL_S = 5.0


def send(url: str, name: str, topic: str, rate: float, record: RecordFile) -> None:
    """Send one message after the other, each until it is accepted."""
    number = Published.read(record.path).last + 1
    while not record.is_stopping:
        try:
            connection = BlockingConnection(url, timeout=ANSWER_S, heartbeat=10)
            sender = connection.create_sender(topic)
            while not record.is_stopping:
                sender.send(Message(body=payload(name, number), inferred=True), timeout=ANSWER_S)
                record.write("stored", number)
                number += 1
                time.sleep(1 / rate)
            connection.close()
        except (ProtonException, SendException, OSError) as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            time.sleep(AGAIN_S)
    record.write(DONE)


def receive(url: str, name: str, pattern: str, record: RecordFile) -> None:
    """Record and accept messages."""
    while True:
        try:
            container = Container()
            container.container_id = name
            connection = BlockingConnection(url, container=container, timeout=ANSWER_S, heartbeat=10)
            receiver = connection.create_receiver(
                pattern, credit=100, name="in", options=DurableSubscription()
            )
            while True:
                _receive_one(receiver, record)
        except (ProtonException, OSError) as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            time.sleep(AGAIN_S)


def _receive_one(receiver: object, record: RecordFile) -> None:
    try:
        message = receiver.receive(timeout=POLL_S)  # type: ignore[attr-defined]
    except Timeout:
        return
    publisher, number = parse(bytes(message.body))
    record.write("read", publisher, number, message.annotations["x-opt-reknit-topic"])
    receiver.accept()  # type: ignore[attr-defined]


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["send", url, name, topic, rate, file]:
            send(url, name, topic, float(rate), RecordFile(Path(file)))
        case ["receive", url, name, pattern, file]:
            receive(url, name, pattern, RecordFile(Path(file)))
        case _:
            sys.exit(__doc__)
