"""A server gives its real address. An address that can't be used is named with the reason."""

from __future__ import annotations

import asyncio

import pytest

from reknit.transport.servers import listen_failure, open_server


@pytest.mark.parametrize(("host", "shown"), [("127.0.0.1", "127.0.0.1"), ("::1", "[::1]")])
def test_a_free_port_is_in_the_address(host: str, shown: str) -> None:
    async def main() -> tuple[str, int]:
        server, url = await open_server(asyncio.Protocol, "tcp", host, 0)
        port = server.sockets[0].getsockname()[1]
        server.close()
        return url, port

    url, port = asyncio.run(main())
    assert port > 0
    assert url == f"tcp://{shown}:{port}"


def test_an_address_that_is_taken_is_refused_in_plain_words() -> None:
    async def main() -> OSError:
        server, url = await open_server(asyncio.Protocol, "tcp", "127.0.0.1", 0)
        try:
            with pytest.raises(OSError, match="in use") as refused:
                await open_server(asyncio.Protocol, "tcp", "127.0.0.1", int(url.rpartition(":")[2]))
        finally:
            server.close()
        return refused.value

    why = listen_failure("tcp://here:1", asyncio.run(main()))
    assert why == "names tcp://here:1, which can't be listened on: address already in use"
