"""Programs that use the AMQP gateway, through proton's engine (`client.py`). Begin with `links.py`."""
