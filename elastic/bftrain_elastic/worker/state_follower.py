"""Follows the state of a training before this worker joins it: the new worker's side of a state stream."""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final

from bftrain_elastic.worker.shard_keeper import StateBase
from bftrain_elastic.worker.state_stream import FRAME, STANDSTILL_S, STREAM, optimizers_of, pieces
from bftrain_elastic.worker.state_transfer import receivable
from bftrain_elastic.worker.state_tree import StateTree, Tensor, as_bytes
from bftrain_elastic.worker.state_values import capture, inner, keep, restore

_LOOKING: Final = timedelta(seconds=3)
_NOT_LEFT: Final = -1
_PART_BYTES: Final = 16 * 1024 * 1024  # of gradients: they change three times as much, while the next ones arrive


class StateFollower:
    """Receives a state in a thread, and makes the steps that follow it."""

    def __init__(self, state: StateBase, connection: socket.socket) -> None:
        self._state, self.connection = state, connection
        self._changed = threading.Condition()
        self._is_up, self._over, self._left_step = False, False, _NOT_LEFT
        self._moved_at = time.monotonic()
        self._last: StateTree | None = None  # the step before: its memory is used again
        self._gradients: list[tuple[Tensor, Tensor]] = []  # parameters with those that the members keep
        self._thread = threading.Thread(target=self._follow, name="bftrain-follow", daemon=True)
        self._thread.start()

    @classmethod
    def of_peer(cls, state: StateBase, peer: str) -> StateFollower | None:
        """Follow the worker at ``peer``, if it can be followed."""
        host, _, port = peer.rpartition(":")
        if not (host and optimizers_of(state)):
            return None
        import torch.distributed as dist

        with suppress(RuntimeError, OSError, ValueError):  # it is gone, or serves nothing
            store = dist.TCPStore(host, int(port), is_master=False, wait_for_workers=False, timeout=_LOOKING)
            if store.check([STREAM]):
                door, token = json.loads(store.get(STREAM))
                connection = socket.create_connection((host, door), timeout=_LOOKING.total_seconds())
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, int(STANDSTILL_S))
                connection.sendall(token.encode())
                return cls(state, connection)
        return None

    def wait(self) -> None:
        """Wait until this worker has made all steps that the others have made, or cannot follow them."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_up or self._over)

    def reach(self, step: int) -> bool:
        """Make the steps up to that at which the others left their group; return whether this was possible."""
        with self._changed:
            while not (self._over or self._left_step == step) and time.monotonic() - self._moved_at < STANDSTILL_S:
                self._changed.wait(1.0)
            reached = not self._over and self._left_step == step
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        return reached

    def set_gradients(self) -> None:
        """Set the gradients that the members keep; called when the group has formed."""
        for parameter, gradient in self._gradients:
            parameter.grad = gradient
        self._gradients = []

    def _follow(self) -> None:
        try:
            tree, _ = self._announced(inner(self._state).prepared or capture(self._state))
            deque(self._arriving(tree), maxlen=0)
            restore(self._state, tree, ours=True)
            inner(self._state).prepared = None
            keep(self._state)  # the copy to return to if others die soon after this worker has joined
            while True:
                tree, waiting = self._announced(self._last)
                found = tree.unfolded()
                if "left" in found:
                    self._gradients = self._kept(found["optimizer"], found["kept"])
                    self._set(left_step=int(found["left"]))
                else:
                    self._last = tree
                    self._step(tree, found)
                    if not waiting:
                        self._set(is_up=True)
        except (OSError, EOFError):
            pass  # the whole state is sent when this worker joins
        except (RuntimeError, LookupError, TypeError, ValueError) as error:  # as steps of the script's optimizer raise
            sys.stderr.write(f"bftrain: the state is received when this worker joins, and not before: {error}\n")
        finally:
            self._last = None
            self._set(over=True)
            self.connection.close()

    def _set(self, *, is_up: bool = False, over: bool = False, left_step: int | None = None) -> None:
        with self._changed:
            self._is_up, self._over = self._is_up or is_up, self._over or over
            self._left_step = self._left_step if left_step is None else left_step
            self._changed.notify_all()

    def _announced(self, into: StateTree | None) -> tuple[StateTree, int]:
        """Return the next tree, whose tensors are still to arrive, and how many wait behind it."""
        self.connection.settimeout(None)  # a step may take long
        head = bytearray(FRAME.size)
        self._fill(memoryview(head))
        self.connection.settimeout(STANDSTILL_S)
        length, waiting = FRAME.unpack(head)
        text = bytearray(length)
        self._fill(memoryview(text))
        inner(self._state).mixed = True
        return receivable(bytes(text), into), waiting

    def _arriving(self, tree: StateTree) -> Iterator[Tensor]:
        """Yield the tensors of a tree, each when it has arrived."""
        for tensor in tree.tensors:
            flat = as_bytes(tensor)  # a view, because these tensors are contiguous
            for piece in pieces(flat):
                self._fill(piece)
            yield tensor

    def _fill(self, room: memoryview) -> None:
        while room:
            count = self.connection.recv_into(room)
            if not count:
                raise EOFError
            room = room[count:]
            self._moved_at = time.monotonic()

    def _step(self, tree: StateTree, found: dict[str, Any]) -> None:
        """Make a step of an optimizer; where it treats each parameter by itself, part by part as gradients arrive."""
        optimizer, grads, arriving = (
            optimizers_of(self._state)[found["optimizer"]],
            found["grads"],
            self._arriving(tree),
        )
        for _ in range(len(tree.tensors) - len(grads)):  # those of settings come first
            next(arriving)
        for group, settings in zip(optimizer.param_groups, found["settings"], strict=True):
            group.update(settings)
        in_parts = type(optimizer).__module__.startswith("torch.optim.")
        with ThreadPoolExecutor(1, "bftrain-step") as thread:
            parts, part, size = [], dict[int, Tensor](), 0
            for (number, grad), _ in zip(grads.items(), arriving, strict=True):
                part[number], size = grad, size + grad.nbytes
                if in_parts and size >= _PART_BYTES:
                    parts.append(thread.submit(self._step_part, optimizer, part))
                    part, size = {}, 0
            if part or not parts:
                parts.append(thread.submit(self._step_part, optimizer, part))
            for one in parts:
                one.result()

    def _step_part(self, optimizer: Any, grads: Mapping[int, Tensor]) -> None:  # noqa: ANN401 - torch.optim.Optimizer
        """Make a step with these gradients."""
        parameters = [one for group in optimizer.param_groups for one in group["params"]]
        for number, grad in grads.items():
            parameters[number].grad = grad
        optimizer.step()
        for number in grads:
            parameters[number].grad = None

    def _kept(self, name: str, numbers: Sequence[int]) -> list[tuple[Tensor, Tensor]]:
        """Return the parameters of these numbers with their gradients of the last step."""
        last = self._last.unfolded() if self._last is not None else {}
        if not numbers or last.get("optimizer") != name:
            return []
        parameters = [one for group in optimizers_of(self._state)[name].param_groups for one in group["params"]]
        pairs = [(parameters[number], last["grads"][number]) for number in numbers]
        return [(one, grad) for one, grad in pairs if one.stride() == grad.stride()]
