"""`python -m reknit` is the `reknit` command."""

from reknit.cli.main import main

main()
