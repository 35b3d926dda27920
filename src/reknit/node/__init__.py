"""A node: the one asyncio loop that runs the machines, performs their effects and talks to the world."""
