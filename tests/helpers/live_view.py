"""The state of a live run, built from the updates of ``Client.updates``."""

from __future__ import annotations

from bftrain.live.model import schemas


class LiveView:
    """The state of a live run, built from its updates, the first of which is complete."""

    def __init__(self, first: schemas.Update) -> None:
        self.status: schemas.StatusView = first.status
        self.day = first.day
        self.tasks: dict[int, schemas.TaskFigures] = {}
        self.more = 0
        self.nodes: dict[str, tuple[str, int]] = {}
        self.width_s = 1.0
        self.span_s = 0.0
        self.cells: dict[float, schemas.Cell] = {}  # by when they begin
        self.happened: list[schemas.Happening] = []
        self.update(first)

    def update(self, update: schemas.Update) -> None:
        """Apply an update."""
        self.status, self.day = update.status, update.day
        if update.tasks is not None:
            self.tasks.update((row.number, row) for row in update.tasks.changed)
            for number in update.tasks.gone:
                self.tasks.pop(number, None)
            self.more = update.tasks.more
        if update.nodes is not None:
            self.nodes.update(update.nodes.changed)
            for name in update.nodes.gone:
                self.nodes.pop(name, None)
        if update.history is not None:
            self.width_s, self.span_s = update.history.width_s, update.history.span_s
            for cell in update.history.cells:
                self.cells.pop(cell.begin_s, None)
                self.cells[cell.begin_s] = cell
            oldest = self.status.now_s - self.span_s - self.width_s
            for begin_s in [begin_s for begin_s in self.cells if begin_s < oldest]:
                del self.cells[begin_s]
            self.happened.extend(update.history.happened)
