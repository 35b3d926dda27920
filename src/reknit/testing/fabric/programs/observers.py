"""A program that asks nodes for everything that they tell of themselves, and compares the answers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

from reknit.batch import Batch
from reknit.client import dead_letters
from reknit.errors import Closed, Gone, NotConnected, Refused
from reknit.ledger import ANYCAST
from reknit.node.admin.ledger_reader import LedgerSums
from reknit.node.admin.metrics import metrics_of
from reknit.outcome import Code
from reknit.testing.fabric.nodes import FabricNode
from reknit.testing.fabric.programs.program import CLIENT, Program, Scene

QUESTIONS: Final = ("topics", "config", "streams", "owners", "paused", "links", "routes", "anycast")
"""Requests without arguments, which any node answers."""
PATTERNS: Final = ("**", "plant/**")


def observers(scene: Scene) -> list[Program]:
    """The observer of a plan."""
    if not scene.plan.look_rate:
        return []
    return [ObservingProgram(scene, "observer", next(iter(scene.fabric.nodes.values())))]


class ObservingProgram(Program):
    """Looks at any node, again and again."""

    async def live(self) -> None:
        nodes = list(self.scene.fabric.nodes.values())
        while not self.scene.is_calm:
            await self.scene.sleep_until_calm(self.rng.expovariate(self.scene.plan.look_rate))
            with suppress(OSError, NotConnected, Closed, TimeoutError):
                await self._look_at(self.rng.choice(nodes))

    async def _look_at(self, node: FabricNode) -> None:
        try:
            await self._look(node)
        except Gone:
            pass  # retention removed it meanwhile
        except Refused as error:
            self.scene.record.blame(f"{node.name} refused a question: {error}")

    async def _look(self, node: FabricNode) -> None:
        began = self.now
        async with self.scene.fabric.session(node.url, config=CLIENT, wait_s=2.0) as session:
            for question in QUESTIONS:
                await session.ask(question)
            self._blame(figures_agree(node.name, await session.status(), await session.ledger()))
            await self._read_letters(session)
            await self._try_nonsense(session)
            read = await self._read_journal(session)
        self._blame(journals_can_be_read(self.scene, node, read, began))

    def _blame(self, problems: Iterator[str]) -> None:
        for problem in problems:
            self.scene.record.blame(problem)

    async def _read_journal(self, session: Any) -> list[Batch]:
        """Everything that the node has, from its first position on, and the newest of it by seq."""
        span = await session.ask("span", time_us=0)
        place, found = max(span["start"], span["position"]), list[Batch]()
        while place < span["end"]:
            body, data = await session.ask_raw("read", position=place, stop=span["end"], bytes_max=20_000)
            found += _batches(data)
            if body["next"] <= place:
                break
            place = body["next"]
        await session.ask("records", position=span["start"])
        await session.ask("index", position=span["start"], origin=span["start"], step=1000, stop=span["end"])
        if found:
            last = found[-1]
            where = {"topic": last.topic, "source": last.source, "start": last.first, "stop": last.stop}
            await session.ask_raw("find", **where)
            await session.ask("trail", source=last.source.hex(), seq=last.first)
        await session.ask("checkpoint", pattern=self.rng.choice(PATTERNS))
        return found

    async def _read_letters(self, session: Any) -> None:
        """The newest come first, or the oldest."""
        numbers = [number async for number, _ in dead_letters.letters(session, newest_first=True)]
        if numbers != sorted(numbers, reverse=True):
            self.scene.record.blame(f"dead letters came as {numbers}, not the newest first")
        await dead_letters.waiting(session)

    async def _try_nonsense(self, session: Any) -> None:
        """A request that a node does not know, or whose arguments are wrong, is refused."""
        for what, args, code in (
            ("nonsense", {}, Code.UNIMPLEMENTED),
            ("read", {"position": "here"}, Code.INVALID_ARGUMENT),
            ("find", {"topic": "a", "source": 5, "start": 1, "stop": 2}, Code.INVALID_ARGUMENT),
        ):
            try:
                await session.ask(what, **args)
            except Refused as error:
                if error.code != code:
                    self.scene.record.blame(f"{what} was refused as {error.code}, not as {code}")
            else:
                self.scene.record.blame(f"{what} with {args} was answered")


def figures_agree(name: str, status: dict[str, Any], ledger: list[dict[str, Any]]) -> Iterator[str]:
    """Every row of a ledger that a node tells balances, and its metrics say the same.

    Those of shared topics are judged at rest: an event that is stored and not yet offered is in no place for a moment.
    """
    if status["node"] != name:
        yield f"{status['node']} answered a question to {name}"
    for metric in metrics_of(status, LedgerSums(ledger)):
        for sample in metric.samples:
            is_shared = sample.labels.get("subscriber", "").startswith(ANYCAST)
            if sample.name == "reknit_ledger_balanced" and sample.value != 1 and not is_shared:
                yield f"{name} told that its ledger does not balance for {sample.labels}"
            if sample.value < 0:
                yield f"{name} told that {sample.name} is {sample.value}"


def journals_can_be_read(scene: Scene, node: FabricNode, read: list[Batch], at: float) -> Iterator[str]:
    """Whoever reads a node's journal gets every event that was stored there before."""
    plan = scene.plan
    if (
        plan.retain_events_max
        or plan.retain_bytes_max
        or plan.retain_s_max
        or plan.flip_share
        or scene.replaced
    ):
        return
    found = {bytes(payload) for batch in read for payload in batch.payloads()}
    for sent in scene.record.sent.values():
        is_here = scene.homes.get(sent.publisher) == node.name
        if is_here and sent.is_stored and sent.stored_at < at and sent.payload not in found:
            yield f"{sent.payload!r} was stored, and a reader of the journal of {node.name} did not get it"


def _batches(data: bytes) -> Iterator[Batch]:
    view = memoryview(data)
    while view:
        batch = Batch.parse(view)
        yield batch
        view = view[batch.head.length :]
