"""A node refuses an event that a neighbour carries to it: the link goes on."""

from __future__ import annotations

from reknit.config import Config, LimitSettings, LinkSettings
from reknit.testing.fabric.fabric import Fabric

LONG, SHORT = "plant/" + "x" * 100, "plant/a"


async def _carry_past_a_refused_event(fabric: Fabric) -> bytes:
    one = await fabric.start_node("one", Config(links=LinkSettings(window_bytes=100)))
    limits, links = LimitSettings(topic_bytes_max=50), LinkSettings(to=(one.url,))
    two = await fabric.start_node("two", Config(limits=limits, links=links))

    async def talk() -> bytes:
        async with (
            fabric.session(two.url) as here,
            fabric.session(one.url) as there,
            here.subscribe("plant/**") as events,
        ):
            await here.publish(SHORT, b"linked yet?")
            await anext(events)
            async with there.subscribe("plant/**") as echo:
                await here.publish(SHORT, b"linked")
                await anext(echo)
            await there.publish(LONG, b"refused")
            for _ in range(3):
                await there.publish(SHORT, b"carried")
            found = [(await anext(events)).payload for _ in range(4)]
            assert found == [b"linked", b"carried", b"carried", b"carried"]
            return found[-1]

    return await fabric.host("program").run(talk())


def test_events_behind_a_refused_one_are_carried() -> None:
    with Fabric(seed=1) as fabric:
        assert fabric.run(_carry_past_a_refused_event(fabric)) == b"carried"
