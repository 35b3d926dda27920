"""A sensor: publishes typed readings. Each call returns when its reading is on disk."""

import asyncio

import msgspec

import reknit


class Reading(msgspec.Struct):
    celsius: float
    battery: int = 100


async def main() -> None:
    # With a name, a later run of this program continues the numbering: nothing is stored twice.
    async with reknit.connect("tcp://127.0.0.1:7440", name="boiler-1") as session:
        readings = session.publisher("plant/boiler/temp", codec=Reading)
        for celsius in (71.5, 72.0, 73.25):
            await readings.publish(Reading(celsius))
        async with session.subscribe("plant/*/temp", codec=Reading, history=3) as events:
            for _ in range(3):
                event = await anext(events)
                print(event.seq, event.payload.celsius)


asyncio.run(main())
