"""Requests that nobody answers end at their own deadlines, whatever else waits."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, cast

import pytest

from reknit.address import Address
from reknit.batch import Batch
from reknit.client.rpc.requests import Caller
from reknit.config import RpcSettings
from reknit.connection.publish_driver import StoredFuture
from reknit.envelope.attributes import Attributes
from reknit.errors import RequestFailed
from reknit.outcome import Code

DOORS = Address.parse("//vcu/10/1/7")


class Silence:
    """A subscription that never brings anything."""

    async def __aenter__(self) -> Silence:
        return self

    async def __aexit__(self, *args: object) -> None: ...

    async def batches(self) -> Any:
        await asyncio.Event().wait()
        yield cast(Batch, None)


def test_a_request_with_a_short_ttl_does_not_wait_for_an_earlier_one_with_a_long_ttl() -> None:
    def publish(attributes: Attributes, payload: bytes) -> StoredFuture:
        return asyncio.get_running_loop().create_future()

    async def main() -> None:
        settings = RpcSettings(grace_s=0.01)
        caller = Caller(
            Address.parse("//me/FFFE/1/0"),
            settings,
            publish=publish,
            subscribe=lambda topic: cast(Any, Silence()),
        )
        slow = asyncio.create_task(caller.request(caller.make(DOORS, 3_600_000, None, {}), b""))
        await asyncio.sleep(0)
        with pytest.raises(RequestFailed) as caught:
            await caller.request(caller.make(DOORS, 10, None, {}), b"")
        assert caught.value.code == Code.DEADLINE_EXCEEDED
        assert not slow.done()
        slow.cancel()
        with suppress(asyncio.CancelledError):
            await slow
        await caller.close()

    asyncio.run(main())
