"""`reknit request` and `reknit serve`: send a request to an address, and answer requests with a command.

`commands.py` imports nothing heavy; `requests.py` and `command_service.py` do the work when a command runs. They may
import `client`.
"""
