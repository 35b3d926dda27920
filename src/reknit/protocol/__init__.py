"""The machines: pure state, no I/O. Time, randomness and input come in as arguments; effects go out as values.

One package for each capability. A package may import nouns, `config`, `wire` and the modules of this directory:
`machine` (the contract), `effects`, `disposition`, `ttl`. Packages do not import each other, with one exception:
`subscribe` uses `recovery`. Nothing here imports asyncio, a store or a transport.

Open `machine.py` first, then the machine of a capability: `publish/publisher.py`, `publish/intake.py`,
`dispatch/dispatcher.py`, `subscribe/subscriber.py`. Each has its states or its inputs as a table at the top.
"""
