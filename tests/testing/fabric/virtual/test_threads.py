"""Blocking programs in a simulation: they take turns with the event loop, and end with the simulation."""

from __future__ import annotations

import asyncio

from reknit.client.blocking.session import SyncSession
from reknit.testing.fabric.fabric import Fabric
from reknit.testing.fabric.plans.plan import FabricPlan
from reknit.testing.fabric.programs.program import CLIENT
from reknit.testing.fabric.run import run
from reknit.testing.fabric.virtual.threads import ProgramThread

PLAN = FabricPlan(
    seed=5,
    nodes=2,
    run_s=2.0,
    blocking=1,
    look_rate=1.0,
    senders=1,
    workers=2,
    crash_rate=0.3,
    reset_rate=0.3,
    program_crash_rate=0.5,
    release=0.2,
    reject=0.1,
)


def test_blocking_session_works_in_virtual_time() -> None:
    async def main(fabric: Fabric) -> list[bytes]:
        node = await fabric.start_node("a")
        host, over = fabric.host("pump"), asyncio.get_running_loop().create_future()
        thread, got = ProgramThread(host), list[bytes]()

        def program() -> None:
            make = SyncSession(lambda: fabric.session(node.url, config=CLIENT), start_thread=lambda: thread)
            with make as session, session.subscribe("plant/*", idle_s=5.0) as events:
                session.publish("plant/a", b"one")
                thread.sleep(3600.0)
                session.publish_many("plant/a", [b"two", b"three"])
                got.extend(bytes(event.payload) for event in events)
            over.set_result(None)

        thread.start(program)
        await over
        return got

    with Fabric() as fabric:
        assert fabric.run(main(fabric)) == [b"one", b"two", b"three"]
        assert fabric.loop.now > 3600.0


def test_thread_of_a_crashed_host_ends_with_the_simulation() -> None:
    async def main(fabric: Fabric) -> ProgramThread:
        host = fabric.host("pump")
        thread = ProgramThread(host)
        thread.start(lambda: thread.sleep(10.0))
        await asyncio.sleep(1.0)
        host.crash(is_power_lost=True)
        await asyncio.sleep(20.0)
        assert thread.is_alive, "nobody wakes it"
        return thread

    with Fabric() as fabric:
        thread = fabric.run(main(fabric))
    assert not thread.is_alive


def test_programs_with_threads_keep_every_promise_and_take_the_same_steps() -> None:
    verdicts = [run(5, plan=PLAN, is_traced=True) for _ in range(2)]
    assert verdicts[0].problems == []
    assert verdicts[0].fingerprint == verdicts[1].fingerprint
