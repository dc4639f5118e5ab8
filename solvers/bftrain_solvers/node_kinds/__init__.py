"""The best sizes over several kinds of nodes: prices for each kind, a core, and its exact division.

Words as in :mod:`bftrain_solvers.knapsack`; here each kind has its own *price*. At any prices no plan is worth more
than what all rows are worth at their best once nodes are paid for, plus the price of all nodes: that is the *bound*.
What a plan stays behind it is the sum of its rows' losses and of the price of what it leaves idle. So who knows a plan
that loses ``x`` need only look at columns that lose no more than ``x``: the core.
"""
