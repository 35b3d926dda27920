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


def test_link_that_a_client_adds_while_the_node_starts_does_not_end_it() -> None:
    """A node listens before it links. A client that added a configured link just then ended it, with exit code 1."""

    async def test(fabric: Fabric) -> list[str]:
        other = await fabric.start_node("b", Config(journal=JournalSettings(kind="memory")))
        node = await fabric.start_node("a", replace(Config(), links=LinkSettings(to=(other.url,))))
        node.node.links.outgoing.start()
        return [link.to for link in node.node.links.outgoing]

    with Fabric(seed=1) as fabric:
        assert len(fabric.run(test(fabric))) == 1
