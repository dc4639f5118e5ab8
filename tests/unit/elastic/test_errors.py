"""Errors of the training side reach other processes whole: workers and pools send them pickled."""

from __future__ import annotations

import pickle

import pytest

from bftrain_elastic import errors

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.ElasticError)]


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_survives_pickling(kind: type[errors.ElasticError]) -> None:
    error = kind("is wrong", where="job.py:3", fix="mend it")
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert type(again) is kind
    assert (again.what, again.where, again.fix) == ("is wrong", "job.py:3", "mend it")
