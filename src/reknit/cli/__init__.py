"""The `reknit` command line: one module or sub-package per command.

A command's module imports nothing heavy at the top, so that `reknit --help` starts fast: a command loads the modules
that do the work when it runs. `cli` may import everything except `testing`, and nothing imports `cli`. Open `main.py`
first; `output.py`, `tables.py`, `options.py` and `running.py` are shared by the commands.
"""
