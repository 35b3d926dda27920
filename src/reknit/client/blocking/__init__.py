"""The blocking interface of the client, for programs without asyncio.

It may import everything else in `client`.

Open `session.py` first. Each part wraps its async counterpart; `loop_thread.py` runs those on an event loop in a thread
of its own.
"""
