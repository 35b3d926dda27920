"""Robots: members of a group send to each other directly, in order, and know who is there. No node is needed."""

import asyncio

from reknit.client.group.group import Group

SEEN: dict[str, list[str]] = {}


async def robot(name: str, count: int) -> None:
    everybody = asyncio.Event()
    group = Group.join("robots", member=name)
    group.on_view = lambda view: everybody.set() if len(view.members) == count else None
    async with group:
        await everybody.wait()
        await group.send(f"{name} is ready".encode())
        mine = SEEN.setdefault(name, [])
        async for event in group:
            mine.append(event.payload.decode())
            if len(mine) == count:
                break
        await group.settled()  # everybody has what this one sent


async def main() -> None:
    names = ["arm-1", "arm-2", "lift"]
    await asyncio.gather(*(robot(name, len(names)) for name in names))
    for name in names:
        print(name, "heard:", ", ".join(sorted(SEEN[name])))


asyncio.run(main())
