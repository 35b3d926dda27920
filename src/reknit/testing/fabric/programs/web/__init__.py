"""Programs that use the HTTP gateway: they post (`posters.py`), read (`tunnels.py`), and visit every page.

`requests.py` makes their requests, and `visitors.py` knows what each has to answer.
"""
