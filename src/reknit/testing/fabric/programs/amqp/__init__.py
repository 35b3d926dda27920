"""Programs that use the AMQP gateway, through proton's engine (`client.py`).

Begin with `links.py`: senders and receivers. `visitors.py` uses everything else that AMQP has.
"""
