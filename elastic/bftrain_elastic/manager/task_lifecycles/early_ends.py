"""Ends with the exit code 0 that came before the work was done: the program is started again, but not for ever."""

from __future__ import annotations

from bftrain_elastic.manager.job import LauncherJob
from bftrain_elastic.manager.task_lifecycles.failures import ALLOWED
from bftrain_elastic.manager.task_lifecycles.supervision import TaskSupervision


class EarlyEnds:
    """Counts the ends in a row of one program that were not its last, without a step between."""

    def __init__(self, job: LauncherJob, supervision: TaskSupervision) -> None:
        self._says_when_finished = job.finish_code is not None or bool(job.finish_file)
        self._supervision = supervision
        self._count = 0
        self._step = -1  # at the last of them

    @property
    def is_early(self) -> bool:
        """Whether an exit code of 0 by itself does not mean now that the work is done."""
        return self._says_when_finished or self._supervision.far_from_done

    def count(self) -> str:
        """Count one more; return why the task has failed if it was one too many, otherwise note it."""
        step = self._supervision.step
        self._count = self._count + 1 if step == self._step else 1
        self._step = step
        how = "without saying that it is finished" if self._says_when_finished else "before its work was done"
        text = f"it ended with 0 {self._supervision.progress}, {how}"
        if self._count >= ALLOWED:
            return f"{text}, {ALLOWED} times without a step between"
        self._supervision.note(f"{text}; it is started again")
        return ""

    def forget(self) -> None:
        """Forget them: the task is given another try."""
        self._count = 0
