"""The best sizes over several kinds of nodes: prices for each kind, a core, and its exact division.

The terms are those in :mod:`bftrain_solvers.knapsack`, but each kind has its own *price*. At any prices, the value of
all rows at their best net of node prices, plus the price of all nodes, is an upper *bound* for every plan. The gap of a
plan is the sum of its rows' losses and the price of its idle nodes. With a plan of loss ``x``, only columns with a loss
up to ``x`` need to be searched: the core.
"""
