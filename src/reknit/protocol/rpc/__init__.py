"""RPC: requests and their responses, each request answered once.

May import the nouns, `envelope` and `protocol/machine.py`. Open `requests.py` first for a client's side;
`open_requests.py` is a node's, which answers requests that nobody else answers.
"""
