"""Carries out the faults of a plan, each on a thread of its own, and heals what it broke."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from reknit.processes.process import Process
from reknit.testing.chaos.fabric import Fabric
from reknit.testing.chaos.machine import set_network, throttle
from reknit.testing.chaos.nodes import ChaosNode
from reknit.testing.chaos.plan import Fault, Kind, Plan
from reknit.testing.chaos.proxy import Mode

TERMINATED = 143
"""The exit code of a node that was told to stop while it was still starting."""
MODES = {Kind.CUT: Mode.CUT, Kind.SILENCE: Mode.SILENT, Kind.SLOW: Mode.SLOW}


@dataclass(frozen=True)
class Done:
    """What became of a fault."""

    fault: Fault
    began_s: float
    ended_s: float
    note: str = ""
    """Why it was skipped, or what exactly was done."""
    is_skipped: bool = False


class Skip(Exception):
    """This fault is not possible on this machine."""


class Injector:
    """Runs a plan. `observe` is called with a line for everything that happens."""

    def __init__(self, fabric: Fabric, pipeline: Process | None, observe: Callable[[str], None]) -> None:
        self._fabric, self._pipeline, self._observe = fabric, pipeline, observe
        self._began = time.monotonic()
        self._threads: list[threading.Thread] = []
        self._busy: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        """By target."""
        self.done: list[Done] = []
        self.findings: list[str] = []

    @property
    def now_s(self) -> float:
        """Seconds since the campaign began."""
        return time.monotonic() - self._began

    def run(self, plan: Plan, tick: Callable[[], None]) -> None:
        """Carry out all faults, and return when the last one is healed and the time of the plan is over."""
        self._began = time.monotonic()
        for fault in plan.faults:
            self._sleep_until(fault.at_s, tick)
            thread = threading.Thread(target=self._run, args=(fault,), name=str(fault), daemon=True)
            self._threads.append(thread)
            thread.start()
        self._sleep_until(plan.seconds, tick)
        for thread in self._threads:
            while thread.is_alive():
                thread.join(1.0)
                tick()

    def _sleep_until(self, at_s: float, tick: Callable[[], None]) -> None:
        while (rest := at_s - self.now_s) > 0:
            time.sleep(min(rest, 0.5))
            tick()

    def _run(self, fault: Fault) -> None:
        """Carry out one fault, after those of the same target: on a busy machine a node takes long to start."""
        with self._busy[fault.target]:
            self._carry_out(fault)

    def _carry_out(self, fault: Fault) -> None:
        began_s = self.now_s
        try:
            note, is_skipped = self._inject(fault), False
        except Skip as skip:
            note, is_skipped = f"skipped: {skip}", True
        except Exception as error:
            note, is_skipped = f"failed: {error}", False
            self.findings.append(f"{fault}: {type(error).__name__}: {error}")
        self.done.append(Done(fault, began_s, self.now_s, note, is_skipped))
        self._observe(
            f"{self.now_s:6.1f} s  {fault.target}: {fault.kind} is over{f', {note}' if note else ''}"
        )

    def _inject(self, fault: Fault) -> str:
        self._observe(str(fault))
        if fault.target in self._fabric.links:
            return self._on_link(fault)
        if fault.target == "network":
            return self._on_network(fault)
        if fault.target in self._fabric.nodes:
            return self._on_node(fault, self._fabric.nodes[fault.target])
        client = self._pipeline if fault.target == "pipeline" else self._fabric.clients[fault.target]
        if client is None:
            raise Skip("there is no pipeline")
        return self._on_client(fault, client)

    # -- links and the network

    def _on_link(self, fault: Fault) -> str:
        proxy = self._fabric.links[fault.target]
        proxy.change(MODES[fault.kind], int(fault.detail.split()[0]) / 1000 if fault.detail else 0.0)
        time.sleep(fault.lasts_s)
        proxy.change(Mode.OPEN)
        return ""

    def _on_network(self, fault: Fault) -> str:
        machine = self._fabric.machine
        if not (machine.has_own_network if fault.kind is Kind.DOWN else machine.limits_rate):
            raise Skip("not allowed on this machine")
        if fault.kind is Kind.DOWN:
            set_network(False)
            time.sleep(fault.lasts_s)
            set_network(True)
        else:
            throttle(int(fault.detail.split()[0]))
            time.sleep(fault.lasts_s)
            throttle(0)
        return ""

    # -- clients

    def _on_client(self, fault: Fault, client: Process) -> str:
        if not client.is_running:
            raise Skip("it does not run")
        if fault.kind is Kind.KILL:
            client.kill()
            time.sleep(fault.lasts_s)
            client.start()
        else:
            self._suspend(client, fault.lasts_s)
        return ""

    def _suspend(self, process: Process, lasts_s: float) -> None:
        os.kill(process.pid, signal.SIGSTOP)
        time.sleep(lasts_s)
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGCONT)

    # -- nodes

    def _on_node(self, fault: Fault, node: ChaosNode) -> str:
        if not node.is_running:
            self.findings.append(f"{node.name} ended by itself with code {node.code}: {tail(node)}")
            node.start()
        match fault.kind:
            case Kind.KILL:
                node.kill()
                time.sleep(fault.lasts_s)
                node.start()
            case Kind.SUSPEND:
                self._suspend(node, fault.lasts_s)
            case Kind.RESTART:
                return self._restart(node, fault.detail)
            case Kind.DAMAGE:
                node.kill()
                note = node.damage(float(fault.detail.split()[1]))
                node.start()
                return note
            case Kind.CLOCK | Kind.SYNC:
                self._with_control(fault, node)
            case Kind.FULL:
                self._fill(fault, node)
            case _:
                raise AssertionError(fault)
        return ""

    def _restart(self, node: ChaosNode, detail: str) -> str:
        changes = dict(pair.split("=", 1) for pair in detail.split(", "))
        code = node.stop()
        node.change_settings(changes)
        node.start()
        if code not in (0, TERMINATED):
            self.findings.append(f"{node.name} ended with code {code} after SIGTERM: {tail(node)}")
        return ""

    def _with_control(self, fault: Fault, node: ChaosNode) -> None:
        control = node.control
        if control is None:
            raise Skip("there is no C compiler")
        if fault.kind is Kind.CLOCK:
            control.clock_ahead_s = int(fault.detail.split()[0])
        else:
            control.syncs_fail = True
        control.write()
        time.sleep(fault.lasts_s)
        control.clock_ahead_s, control.syncs_fail = 0, False
        control.write()
        if fault.kind is Kind.SYNC:  # what the node said to do: a failed sync is final for an open journal
            node.kill()
            node.start()

    def _fill(self, fault: Fault, node: ChaosNode) -> None:
        if not node.is_small and node.control is None:
            raise Skip("no small file system, and no C compiler")
        node.fill_disk()
        time.sleep(fault.lasts_s)
        node.free_disk()


def tail(process: Process, count: int = 12) -> str:
    """The last lines that a process wrote."""
    return "\n".join(process.output().splitlines()[-count:])
