"""Request and response: a service with a name, and a program that asks it."""

import asyncio

import reknit


async def add(request: reknit.Request) -> bytes:
    numbers = request.payload.split()
    if not all(number.isdigit() for number in numbers):
        raise reknit.Refused(reknit.Code.INVALID_ARGUMENT, "these are no numbers")
    return b"%d" % sum(map(int, numbers))


async def main() -> None:
    async with reknit.connect("tcp://127.0.0.1:7440") as session, session.serve("calc.add", add):
        reply = await session.request("calc.add", b"20 22", ttl_ms=30_000)
        print(reply.payload.decode())
        try:
            await session.request("calc.add", b"one two", ttl_ms=30_000)
        except reknit.RequestFailed as error:
            print(reknit.Code(error.code).name, error.text)


asyncio.run(main())
