"""The best sizes over several kinds of nodes: prices for each kind, a core, and its exact division.

Words as in :mod:`bftrain_solvers.knapsack`; here each kind has its own *price*. At any prices no plan is worth more
than all rows at their best once nodes are paid for, plus the price of all nodes: that is the *bound*. A plan falls
short of it by the sum of its rows' losses and the price of its idle nodes. So with a plan that loses ``x``, only
columns that lose at most ``x`` need to be searched: the core.
"""
