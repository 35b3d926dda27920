"""The demo on the terminal: processes, progress and actions. Without a terminal, only a line for every action."""

from __future__ import annotations

import time

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from reknit.cli.demo.fabric import DemoFabric
from reknit.cli.tables import table


class DemoScreen:
    """Shows the demo's fabric."""

    def __init__(self, fabric: DemoFabric) -> None:
        self._fabric = fabric
        self._console = Console(highlight=False)
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._begun = time.monotonic()

    def __enter__(self) -> DemoScreen:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *args: object) -> None:
        self._live.stop()

    def tell(self, text: str) -> None:
        """Print an action as a line that stays."""
        style = "red" if text.startswith("kill") else ""
        seconds = time.monotonic() - self._begun
        self._console.print(Text(f"{seconds:5.1f} s  ", style="dim"), Text(text, style=style), sep="")
        self.show()

    def show(self) -> None:
        """Redraw the figures."""
        if self._console.is_terminal:
            self._live.update(self._picture(), refresh=True)

    def _picture(self) -> RenderableType:
        return Group(Text(), self._processes(), Text(), self._progress())

    def _processes(self) -> Table:
        made = table(("process", "state"), ("killed",))
        for process in self._fabric.processes:
            state = "[green]running[/]" if process.is_running else "[red]dead[/]"
            if process.code == 0:
                state = "[dim]done[/]"
            made.add_row(process.name, state, str(process.kills or ""))
        return made

    def _progress(self) -> Table:
        fabric = self._fabric
        grid = Table.grid(padding=(0, 2))
        rows = [("published", fabric.published, max(fabric.total, fabric.published))]
        for subscriber in fabric.subscribers:
            own = [row for row in fabric.rows if row["subscriber"] == subscriber.name]
            ended = sum(row["accepted"] + row["dead_lettered"] for row in own)
            rows.append((subscriber.name, ended, fabric.count * max(1, len(own))))
        for name, done, total in rows:
            grid.add_row(name, ProgressBar(total=total, completed=min(done, total), width=40), f"{done:,}")
        return grid
