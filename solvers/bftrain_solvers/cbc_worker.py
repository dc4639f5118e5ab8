"""The process in which CBC runs, ``python -m bftrain_solvers.cbc_worker``: reads problems, writes answers.

It ends when its input ends, and an alarm ends it when it overruns a deadline by far: so it never outlives the program
for longer than the solve it is at, even if CBC does not come back.
"""

from __future__ import annotations

import os
import sys
from signal import ITIMER_REAL, SIG_DFL, SIGALRM, setitimer, signal
from typing import BinaryIO, Final

import mip
import msgspec
import numpy as np

from bftrain_solvers.cbc_messages import LENGTH, CbcReply, CbcRequest, framed, unpacked
from bftrain_solvers.matrix import ModelMatrix

_OVERRUN_S: Final = 5.0  # far beyond the time after which the program gives the worker up


def main() -> None:
    """Serve until the input ends."""
    signal(SIGALRM, SIG_DFL)  # not the inherited handler: it ends the process, also inside native code
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # CBC prints to the standard output: keep that away from the answers
    answers.write(framed(CbcReply(status="ready", words=f"python-mip {mip.__version__}")))
    decoder = msgspec.msgpack.Decoder(CbcRequest)
    while body := _next(sys.stdin.buffer):
        answers.write(framed(_answer(decoder.decode(body))))


def _next(source: BinaryIO) -> bytes:
    head = source.read(LENGTH.size)
    return source.read(LENGTH.unpack(head)[0]) if len(head) == LENGTH.size else b""


def _answer(request: CbcRequest) -> CbcReply:
    setitimer(ITIMER_REAL, request.seconds + _OVERRUN_S)
    try:
        return _solved(unpacked(request.fields), request)
    except Exception as error:  # noqa: BLE001 - the worker stays up; the program tells what happened
        return CbcReply(status="raised", words=f"{type(error).__name__}: {error}")
    finally:
        setitimer(ITIMER_REAL, 0.0)


def _solved(matrix: ModelMatrix, request: CbcRequest) -> CbcReply:
    model = _model(matrix)
    # Asked for 1 thread, CBC searches in a second one beside the first; now and then the two miss each other for good
    model.threads = request.threads if request.threads > 1 else 0
    model.max_mip_gap = request.relative_gap
    model.max_mip_gap_abs = 0.0
    model.integer_tol = 1e-9
    model.infeas_tol = 1e-9
    status = model.optimize(max_seconds=request.seconds)
    columns = None
    if model.num_solutions:
        columns = np.array([column.x for column in model.vars], dtype=np.float64).tobytes()
    bound = model.objective_bound
    finite = bound is not None and abs(bound) < mip.INF
    return CbcReply(status=status.name, columns=columns, bound=float(bound) if finite else None, words=status.name)


def _model(matrix: ModelMatrix) -> mip.Model:
    model = mip.Model(sense=mip.MAXIMIZE, solver_name=mip.CBC)
    model.verbose = 0
    columns = [
        model.add_var(lb=lower, ub=upper, obj=worth, var_type=mip.INTEGER if integer else mip.CONTINUOUS)
        for lower, upper, worth, integer in zip(
            matrix.lower.tolist(),
            matrix.upper.tolist(),
            matrix.objective.tolist(),
            matrix.integer.tolist(),
            strict=True,
        )
    ]
    starts = matrix.starts.tolist()
    for row, (lower, upper) in enumerate(zip(matrix.row_lower.tolist(), matrix.row_upper.tolist(), strict=True)):
        part = slice(starts[row], starts[row + 1])
        used = [columns[column] for column in matrix.columns[part].tolist()]
        sides = [("=", lower)] if lower == upper else [(">", lower), ("<", upper)]
        for sense, side in sides:
            if abs(side) < mip.INF:
                model.add_constr(mip.LinExpr(used, matrix.coefficients[part].tolist(), -side, sense))
    return model


if __name__ == "__main__":
    main()
