"""Where a queue lives: on one node. A member that subscribes on another one is told where to connect."""

from __future__ import annotations

from collections.abc import Callable

from reknit.ledger import QUEUES
from reknit.outcome import Code
from reknit.wire.messages import Subscribe


def objection(request: Subscribe, elsewhere: Callable[[str], str]) -> tuple[Code, str] | None:
    """Why a subscription is not possible here: it takes a queue's name, or another node has the queue.

    `elsewhere` returns the name of that node for the name of the queue's account, or an empty text.

    >>> from reknit.wire.messages import Start
    >>> objection(Subscribe(1, "jobs/**", "", Start(), 1, queue="work"), lambda account: "'b'")[1]
    "queue 'work' is on node 'b': connect there, or use another queue"
    """
    if request.name.startswith(QUEUES):
        queue = request.name.removeprefix(QUEUES)
        text = f"the name {request.name!r} is that of a queue: subscribe with queue={queue!r}, or use another name"
        return Code.INVALID_ARGUMENT, text
    node = elsewhere(request.account) if request.queue else ""
    if not node:
        return None
    text = f"queue {request.queue!r} is on node {node}: connect there, or use another queue"
    return Code.FAILED_PRECONDITION, text
