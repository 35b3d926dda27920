from __future__ import annotations

from reknit.wire.announced import Announced
from reknit.wire.messages import Deliver
from reknit.wire.recovery import Recovered


def test_parts_belong_to_the_message_that_announced_them() -> None:
    due: Announced[Deliver] = Announced()
    message = Deliver(1, 300, 4096)
    due.announce(message)
    assert due.take(100) == (message, False)
    assert due.take(200) == (message, True)
    assert due.take(8) is None


def test_unannounced_bytes_belong_to_nobody() -> None:
    due: Announced[Recovered] = Announced()
    assert due.take(8) is None
    due.announce(Recovered(1, 64, []))
    due.clear()
    assert due.take(64) is None
