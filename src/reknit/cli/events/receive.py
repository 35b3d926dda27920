"""Subscribes for `reknit sub`: prints every batch, accepts it, and says how to resume."""

from __future__ import annotations

from reknit.checkpoint import Checkpoint
from reknit.cli.events.event_output import Printer
from reknit.cli.output import say
from reknit.cli.running import connected, run
from reknit.client.session import Session
from reknit.outcome import Outcome
from reknit.queue_order import QueueOrder


def receive(
    pattern: str,
    printer: Printer,
    *,
    node: str,
    name: str,
    queue: str,
    order: QueueOrder,
    history: bool,
    checkpoint: str | None,
    count: int | None,
) -> None:
    """Print events until a signal comes or `count` of them are printed; then print how to resume."""
    start = Checkpoint.from_text(checkpoint) if checkpoint is not None else None
    try:
        run(_receive(node, pattern, name, queue, order, history, start, count, printer))
    finally:
        if queue:
            say(f"resume with --queue {queue}" + f" --order {order}" * bool(order))
        elif printer.checkpoint is not None:
            say(f"resume with --name {name}" if name else f"resume with --from {printer.checkpoint}")


async def _receive(
    node: str,
    pattern: str,
    name: str,
    queue: str,
    order: QueueOrder,
    history: bool,
    start: Checkpoint | None,
    count: int | None,
    printer: Printer,
) -> None:
    async with connected(node) as session:
        is_live = start is None and not history and not name and not queue
        before = await _present(session, pattern) if is_live else start or Checkpoint()
        subscription = session.subscribe(
            pattern, name=name, queue=queue, order=order, history=history, start=start, auto_accept=False
        )
        async with subscription as events:
            printer.start_from(before)
            async for batch in events.batches():
                part = batch if count is None else batch.cut(batch.first, batch.first + count)
                printer.write(part)
                assert batch.settle is not None
                await batch.settle(part.first, part.stop, Outcome.ACCEPTED)
                if count is not None and (count := count - part.count) == 0:
                    return


async def _present(session: Session, pattern: str) -> Checkpoint:
    """The checkpoint after everything that the node holds now."""
    return Checkpoint.from_json(await session.ask("checkpoint", pattern=pattern))
