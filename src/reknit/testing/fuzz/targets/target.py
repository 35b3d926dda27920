"""What a target is: it makes inputs from random numbers. Some are for a port of a node, the others are tried here."""

from __future__ import annotations

from abc import ABC, abstractmethod
from random import Random
from typing import ClassVar

from reknit.testing.fuzz.inputs import ABORT, END, HEAR, SAY, FuzzInput, Step
from reknit.testing.fuzz.mutations import cut
from reknit.testing.fuzz.node import FuzzedNode
from reknit.testing.fuzz.peers import Conversations, Peers


class Target(ABC):
    """Makes the inputs of one kind."""

    name: ClassVar[str]

    @abstractmethod
    def make(self, rng: Random) -> tuple[Step, ...]:
        """The steps of one input."""

    def input(self, seed: int, number: int) -> FuzzInput:
        """An input: always the same for the same numbers."""
        return FuzzInput(self.name, seed, number, self.make(Random(f"{self.name} {seed} {number}")))


class PortTarget(Target):
    """Its inputs are conversations with a real node that runs as a process of its own."""

    port: ClassVar[str]
    """Which port of the node: tcp, http, amqp, metrics or zenoh."""

    def peers(self, node: FuzzedNode) -> Conversations:
        """Those who take the steps of its inputs."""
        return Peers(node.ports[self.port])

    async def check(self, node: FuzzedNode) -> str:
        """What is wrong with the node's port after many inputs, where the canary does not see it."""
        return ""


class LocalTarget(Target):
    """Its inputs are tried in a process of this program, and it says what is wrong with the result."""

    def __enter__(self) -> LocalTarget:
        return self

    def __exit__(self, *args: object) -> None:
        """Remove what was made."""

    @abstractmethod
    def problem(self, steps: tuple[Step, ...]) -> str:
        """Try an input. Returns what is wrong, or an empty text. An error that it raises is a finding, too."""


def conversation(rng: Random, parts: list[tuple[bytes, bool]]) -> tuple[Step, ...]:
    """The steps of a client that says these parts, waits after those that are answered, and ends in some way."""
    is_in_step = rng.random() < 0.7
    steps: list[Step] = []
    for data, is_answered in parts:
        pieces = cut(rng, data) if rng.random() < 0.03 else [data]
        steps += [Step(SAY, piece) for piece in pieces]
        if is_answered and is_in_step:
            steps.append(Step(HEAR))
    steps = _joined(steps)
    match rng.randrange(4):
        case 0:
            steps.append(Step(ABORT))
        case 1 if rng.random() < 0.3:
            steps.append(Step(HEAR))  # it stays open, and reads nothing more
        case 1:
            steps += [Step(HEAR), Step(ABORT)]
        case _:
            steps.append(Step(END))
    return tuple(steps)


def _joined(steps: list[Step]) -> list[Step]:
    """Without empty parts."""
    return [step for step in steps if step.data or step.do != SAY]
