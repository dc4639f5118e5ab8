"""TaskEdit: changes of a task that holds no nodes."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from bftrain.live.model.schemas import MOST_NODES
from bftrain.live.model.task_record import NAME, is_name, said
from bftrain.values import checks


class TaskEdit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Changes of a task that holds no nodes; what is not given stays as it is."""

    min_nodes: Annotated[int | None, said("The fewest on which it can run.", minimum=1, maximum=MOST_NODES)] = None
    max_nodes: Annotated[int | None, said("The most nodes that it can use.", minimum=1, maximum=MOST_NODES)] = None
    weight: Annotated[float | None, said("What it counts under some objectives.", minimum=0)] = None
    deadline_s: Annotated[float | None, said("When it should be done; seconds since 1970; 0: no deadline.")] = None
    name: Annotated[str | None, said("What to call it from now on.", pattern=f"^{NAME}$")] = None
    campaign: Annotated[str | None, said("What it belongs to.")] = None

    def __post_init__(self) -> None:
        """Check that there is a change, and its limits."""
        checks.optional_number(self, "weight", "deadline_s", at_least=0.0)
        if self.name is not None and not is_name(self.name):
            checks.reject(self, "name", f"must be up to 100 letters, digits, '.', '_' and '-', not {self.name!r:.40}")
        if not self.changes and self.name is None:
            checks.reject(self, "max_nodes", "nothing is to be changed", "give one of the fields")
        for name in ("min_nodes", "max_nodes"):
            if (nodes := getattr(self, name)) is not None and not 1 <= nodes <= MOST_NODES:
                checks.reject(self, name, f"must be 1 to {MOST_NODES}")

    @property
    def changes(self) -> dict[str, Any]:
        """The fields of a TaskSpec that change, but for its name."""
        fields = (name for name in self.__struct_fields__ if name != "name")
        given = {name: value for name in fields if (value := getattr(self, name)) is not None}
        return given | ({"deadline_s": self.deadline_s or None} if self.deadline_s is not None else {})
