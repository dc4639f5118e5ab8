"""finish: a program says that its work is done."""

from __future__ import annotations

import warnings

from bftrain_elastic.worker.agent_channel import AgentChannel


def finish() -> None:
    """Say that the work is done, so that the task is over when this program ends.

    A scheduler that takes a node sends SIGTERM to all processes there. A program that saves and exits with 0 then looks
    like one whose work is done, so under the launchers ``process`` and ``torchrun`` an exit code of 0 is not always
    believed. A program that says it is. Any rank may say it, once; a script whose ``train`` returns from
    :func:`bftrain_elastic.run` need not. Without an agent nothing happens.

    Example::

        from bftrain_elastic import finish

        while step < STEPS:
            train_one_step()
        save_checkpoint()
        finish()
    """
    try:
        channel = AgentChannel.from_environment()
        if channel is not None:
            channel.say({"type": "finished"})
            channel.close()
    except OSError as error:
        warnings.warn(f"the end of the work could not be reported: {error}", RuntimeWarning, stacklevel=2)
