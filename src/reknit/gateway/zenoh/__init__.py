"""zenoh."""
