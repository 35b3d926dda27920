"""uProtocol's attributes of events: their rules, their columns in a batch, and their form in other formats.

This package imports only the values that a batch is built on (address, batch_layout, errors, outcome). `reknit.batch`
imports it for `Event.attributes`. Open `attributes.py` first; `columns.py` stores attributes in a batch, and
`cloudevents.py` and `umessage.py` convert events to CloudEvents and protobuf.
"""
