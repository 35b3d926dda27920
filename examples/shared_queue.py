"""A shared queue: each job goes to one of the members, and a job that fails goes to any of them again."""

import asyncio
from collections import Counter

import reknit

DONE: Counter[bytes] = Counter()


async def member(session: reknit.Session, count: int) -> None:
    async with session.subscribe("jobs/**", queue="resizers", history=True, auto_accept=False) as jobs:
        while len(DONE) < count:
            try:
                job = await asyncio.wait_for(anext(jobs), timeout=0.2)
            except TimeoutError:
                continue
            if job.attempt == 1 and job.payload == b"picture-3":
                await job.fail(delay_s=0.1)  # back to the queue
                continue
            DONE[job.payload] += 1
            await job.accept()


async def main() -> None:
    async with reknit.connect("tcp://127.0.0.1:7440") as one, reknit.connect("tcp://127.0.0.1:7440") as two:
        await one.publish_many("jobs/resize", [b"picture-%d" % number for number in range(1, 7)])
        await asyncio.gather(member(one, 6), member(two, 6))
    print(len(DONE), "pictures, each resized", *set(DONE.values()), "time")


asyncio.run(main())
