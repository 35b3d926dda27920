"""subscribe."""
