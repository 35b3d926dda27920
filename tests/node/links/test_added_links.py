"""Links that an operator adds, in virtual time: they outlast a restart, beside those of the configuration."""

from __future__ import annotations

from dataclasses import replace

from reknit.config import Config, JournalSettings, LinkSettings
from reknit.testing.fabric.fabric import Fabric


def test_configured_link_that_was_removed_and_added_again_outlasts_a_restart() -> None:
    async def test(fabric: Fabric) -> list[int]:
        other = await fabric.start_node("b", Config(journal=JournalSettings(kind="memory")))
        node = await fabric.start_node("a", replace(Config(), links=LinkSettings(to=(f"{other.url}=3",))))

        async def change() -> None:
            async with fabric.session(node.url) as session:
                await session.ask("link_remove", to=other.url)
                await session.ask("link_add", to=f"{other.url}=7")

        await fabric.host("operator").run(change())
        await node.stop()
        await node.start()
        return [link.cost for link in node.node.links.outgoing]

    with Fabric(seed=1) as fabric:
        assert fabric.run(test(fabric)) == [7]
