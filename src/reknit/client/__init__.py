"""The client: connect, publish, subscribe, ask; async, and a blocking face of the same."""
