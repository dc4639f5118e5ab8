"""Streams the state to new workers while the members train on: the members' side.

A new worker receives the state of one commit. After that it receives what each step of an optimizer is made of, the
averaged gradients and the settings, and makes the same steps. So it has the present state when it joins, except for
values that no optimizer changes: at the join members compare digests, and only tensors that differ are sent. After the
first step all bytes have been compared (``join_check``).
"""

from __future__ import annotations

import ctypes
import hmac
import json
import queue
import secrets
import select
import socket
import struct
import sys
import threading
import weakref
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final

from bftrain_elastic.errors import BadScript
from bftrain_elastic.worker.background_save import fits_in_memory
from bftrain_elastic.worker.no_stream import NoStream
from bftrain_elastic.worker.shard_keeper import StateBase
from bftrain_elastic.worker.state_transfer import described
from bftrain_elastic.worker.state_tree import StateTree, Tensor, alike, as_bytes, copied, fold, size_of, version_of
from bftrain_elastic.worker.state_values import SPARES, capture, inner, keep

STREAM: Final = "bftrain/stream"  # where a store holds port and token
FRAME: Final = struct.Struct("!QI")  # bytes of a description, and how many frames wait behind it
STANDSTILL_S: Final = 20.0  # in which nothing is sent or received
PIECE_BYTES: Final = 4 * 1024 * 1024
TOKEN_BYTES: Final = 32
_LEAST_BYTES: Final = 32 * 1024 * 1024  # a smaller state is sent within a tenth of a second when a worker joins
_MOST_FOLLOWERS: Final = 4  # new workers at once; with more the members would wait for this one
_MOST_QUEUED: Final = 2  # times the size of the state may wait to be sent to a new worker
_MOST_SENT: Final = 0.5  # of the state of one that has followed: if more has to be sent it followed in vain
_MOST_IN_VAIN: Final = 2
_ROOMS: Final = 4  # copies of gradients whose memory is used again: allocating it takes ten times as long as copying
_BYTES_PER_S: Final = 1e9  # gradients that come faster cannot be followed


class StateStream(NoStream):
    """Serves the state of this worker; :meth:`at_commit` and the hooks run in the training's thread."""

    def __init__(self, state: StateBase, address: str) -> None:
        self._state, self._own = state, inner(state)
        self._door = socket.create_server((address, 0))
        self._token = secrets.token_hex(TOKEN_BYTES // 2)
        self.arrived: deque[socket.socket] = deque()
        self.followers: list[_Follower] = []
        self._hooks: list[Any] = []
        self._rooms: list[StateTree] = []  # copies of gradients, whose memory is used again once they were sent
        self._stepped: tuple[str, dict[int, tuple[weakref.ref[Any], int]]] = ("", {})  # the last gradients
        self._in_vain = 0  # groups in a row to which those that followed came without the state
        threading.Thread(target=self._accept, name="bftrain-stream", daemon=True).start()

    def publish(self, store: Any) -> None:  # noqa: ANN401 - torch.distributed.Store
        """Store where new workers connect, and the token that they send first."""
        store.set(STREAM, json.dumps([self._door.getsockname()[1], self._token]))

    @property
    def is_followed(self) -> bool:
        """Whether a new worker receives the state."""
        return any(one.alive for one in self.followers)

    def holds(self, tree: object) -> bool:
        """Return whether a copy is being sent."""
        return tree is not None and any(one.alive and id(tree) in one.unsent for one in self.followers)

    def at_commit(self, *, leaving: bool) -> None:
        """Start to send the state to new workers, or tell those that follow that the group is left at this step."""
        self.followers = [one for one in self.followers if not one.has_left()]
        if leaving:
            name, numbers = self._kept_gradients()
            for one in self.followers:
                one.put(fold({"left": self._own.step, "optimizer": name, "kept": numbers}))
        else:
            while self.arrived:
                self._admit(self.arrived.popleft())
        if not self.followers:
            self._unhook()

    def joined(self, sent_bytes: int) -> None:
        """Record how much of the state was sent when a group formed, and let go of those that are members now."""
        before = len(self.followers)
        self.followers = [one for one in self.followers if not one.has_left()]
        if len(self.followers) < before:
            in_vain = sent_bytes > _MOST_SENT * size_of(capture(self._state))
            self._in_vain = self._in_vain + 1 if in_vain else 0

    def drop(self) -> None:
        """Abandon the followers: the data they received no longer leads to the present state."""
        for one in self.followers:
            one.close()
        self.followers = []
        self._unhook()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._door.accept()
                connection.settimeout(STANDSTILL_S)
                with suppress(OSError):
                    token = connection.recv(TOKEN_BYTES, socket.MSG_WAITALL)
                    if hmac.compare_digest(token, self._token.encode()):
                        self.arrived.append(connection)
                        continue
                connection.close()

    def _admit(self, connection: socket.socket) -> None:
        if not self._can_be_followed():
            connection.close()
            return
        own = self._own
        copy = own.copy if own.copy is not None and own.copy_step == own.step else keep(self._state)
        follower = _Follower(connection, _MOST_QUEUED * size_of(copy))
        self.followers.append(follower)
        follower.put(copy)
        if not self._hooks:
            self._hooks = [
                one.register_step_pre_hook(partial(self._record, name))
                for name, one in optimizers_of(self._state).items()
            ]

    def _can_be_followed(self) -> bool:
        tree, trained = capture(self._state), list(optimizers_of(self._state).values())
        step_bytes = sum(one.nbytes for optimizer in trained for one in _parameters(optimizer) if one.requires_grad)
        return (
            bool(trained)
            and self._own.shards is None
            and self._in_vain < _MOST_IN_VAIN
            and len(self.followers) < _MOST_FOLLOWERS
            and size_of(tree) >= _LEAST_BYTES
            and all(one.device.type == "cpu" for one in tree.tensors)
            and step_bytes <= self._own.pace_s * _BYTES_PER_S
            and fits_in_memory(self._missing_copies(tree) + min(_ROOMS * step_bytes, _MOST_QUEUED * size_of(tree)))
        )

    def _missing_copies(self, tree: StateTree) -> int:
        """Return the bytes of copies of the state that may be needed beside those that are there."""
        there = [one for one in (self._own.copy, *self._own.spares) if one is not None and alike(one, tree)]
        return max(1 + SPARES - len(there), 0) * size_of(tree)

    def _record(self, name: str, optimizer: Any, args: Any, kwargs: Mapping[str, Any]) -> None:  # noqa: ANN401 - torch's
        """Send what a step of an optimizer is made of; called before it."""
        if not self.is_followed:  # the next commit removes the hook: to free its memory would delay this step
            return
        grads = {number: one.grad for number, one in enumerate(_parameters(optimizer)) if one.grad is not None}
        closure = any(one is not None for one in (*args[1:], *kwargs.values()))
        if closure or any(str(one.layout) != "torch.strided" for one in grads.values()):
            self.drop()  # a closure computes gradients again, and sparse ones are not sent
            return
        settings = [{key: one[key] for key in one if key != "params"} for one in optimizer.param_groups]
        try:
            step = fold({"optimizer": name, "settings": settings, "grads": grads})
        except BadScript:
            self.drop()
            return
        room = next((one for one in self._rooms if alike(one, step) and not self.holds(one)), None)
        copy = copied(step, room)
        self._rooms = [copy, *(one for one in self._rooms if one is not room)][:_ROOMS]
        self._stepped = name, {number: (weakref.ref(one), version_of(one)) for number, one in grads.items()}
        for follower in self.followers:
            follower.put(copy)

    def _kept_gradients(self) -> tuple[str, list[int]]:
        """Return the optimizer that stepped last, and the parameters that still have the gradients of that step.

        A new worker keeps these too: it would take long to allocate their memory in its first step.
        """
        name, grads = self._stepped
        optimizer = optimizers_of(self._state).get(name)
        present = [one.grad for one in _parameters(optimizer)] if optimizer is not None else []
        return name, [
            number
            for number, (grad, version) in grads.items()
            if number < len(present) and grad() is present[number] is not None and version_of(grad()) == version
        ]

    def _unhook(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks, self._rooms, self._stepped = [], [], ("", {})


class _Follower:
    """A new worker; a thread sends it one tree after another."""

    def __init__(self, connection: socket.socket, most_bytes: int) -> None:
        self.connection = connection
        self._queue: queue.SimpleQueue[StateTree | None] = queue.SimpleQueue()
        self._queued, self._sent, self._most = 0, 0, most_bytes
        self.alive = True
        self.unsent: set[int] = set()  # ids of the trees that wait or are being sent
        threading.Thread(target=self._send, name="bftrain-follower", daemon=True).start()

    def put(self, tree: StateTree) -> None:
        """Send a tree after those before it, or give up if too much waits: steps are made faster than they are sent."""
        self._queued += size_of(tree)
        if self._queued - self._sent > self._most:
            self.close()
        else:
            self.unsent.add(id(tree))
            self._queue.put(tree)

    def has_left(self) -> bool:
        """Return whether the new worker has ended the connection; it says nothing otherwise."""
        ready = select.poll()
        with suppress(OSError, ValueError):  # it was closed just now
            ready.register(self.connection, select.POLLIN)
            if self.alive and ready.poll(0):
                self.close()
        return not self.alive

    def close(self) -> None:
        """Stop; another thread may be sending."""
        self.alive = False
        self._queue.put(None)
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def _send(self) -> None:
        with suppress(OSError):
            while self.alive and (tree := self._queue.get()) is not None:
                text = described(tree)
                self.connection.sendall(FRAME.pack(len(text), self._queue.qsize()) + text)
                for tensor in tree.tensors:
                    kept = as_bytes(tensor)
                    for piece in pieces(kept):
                        self.connection.sendall(piece)
                        self._sent += len(piece)
                self.unsent.discard(id(tree))
        self.alive = False
        self.connection.close()


def pieces(flat: Tensor) -> Iterator[memoryview]:
    """Yield the memory of a tensor of bytes, piece by piece; the tensor must be kept meanwhile."""
    size = flat.numel()
    if size:
        whole = memoryview((ctypes.c_char * size).from_address(flat.data_ptr())).cast("B")
        for start in range(0, size, PIECE_BYTES):
            yield whole[start : start + PIECE_BYTES]


def optimizers_of(state: StateBase) -> dict[str, Any]:
    """Return the optimizers that are values of a state."""
    torch = sys.modules.get("torch")
    return {name: one for name, one in vars(state).items() if torch and isinstance(one, torch.optim.Optimizer)}


def stepped(state: StateBase) -> list[Tensor]:
    """Return the tensors that steps of optimizers change: parameters, and what optimizers keep of each."""
    optimizers = optimizers_of(state).values()
    kept = [one for optimizer in optimizers for found in optimizer.state.values() for one in found.values()]
    parameters = [one.detach() for optimizer in optimizers for one in _parameters(optimizer)]
    return [*parameters, *(one for one in kept if hasattr(one, "data_ptr"))]


def _parameters(optimizer: Any) -> list[Tensor]:  # noqa: ANN401 - torch.optim.Optimizer
    return [one for group in optimizer.param_groups for one in group["params"]]
