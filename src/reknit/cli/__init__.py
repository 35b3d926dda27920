"""The `reknit` command."""
