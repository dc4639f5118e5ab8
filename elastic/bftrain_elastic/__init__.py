"""What runs on the training nodes. It needs the standard library and nothing else.

A training script says once a step how far it is::

    from bftrain_elastic import report

    for batch in batches:
        loss = train(batch)
        report(samples=len(batch), loss=loss)

Alone, on a laptop, ``report`` does nothing; under bftrain its lines are what speeds and rescaling costs are
measured from.
"""

from bftrain_elastic.progress import Reporter, report

__all__ = ["Reporter", "report"]
