"""Admin requests to a node: status, ledger, configuration, metrics, and reading the journal over a connection.

This room may import the other rooms of `node`; nothing imports it but `node.py` and `message_table.py`. Start with
`admin_requests.py`.
"""
