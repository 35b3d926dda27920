"""A test of one's own handler, with a real node in memory. Run it with pytest."""

import asyncio

import reknit
from reknit.testing.pytest_plugin import RunningNode

pytest_plugins = ["reknit.testing.pytest_plugin"]


def make_service(url: str, mails: list[str]) -> reknit.App:
    service = reknit.App(url, name="mailer")

    @service.on("orders/**", retries=1, history=True, backoff_s_min=0, backoff_s_max=0)
    async def confirm(event: reknit.Event) -> None:
        if event.payload == b"":
            raise ValueError("an order without a customer")
        mails.append(event.payload.decode())

    return service


def test_every_order_is_confirmed_or_a_dead_letter(reknit_node: RunningNode) -> None:
    mails: list[str] = []
    with reknit_node.session() as session:
        session.publish_many("orders/new", [b"Ada", b"", b"Zoe"])

    async def run_until_settled() -> None:
        service = make_service(reknit_node.url, mails)
        running = asyncio.create_task(service.serve_until_stopped())
        await asyncio.to_thread(reknit_node.wait_settled, "orders/**")
        service.stop()
        await running

    asyncio.run(run_until_settled())
    assert mails == ["Ada", "Zoe"]
    assert [letter.text for letter in reknit_node.dead_letters()] == [
        "ValueError: an order without a customer"
    ]
