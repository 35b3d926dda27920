"""Tunnels: a cut-off client goes on where it was, or is told that it can't. mod_pubsub's words, our journal."""
