"""The multiple-choice knapsack over sizes, which ``exact`` solves: compiled, and with numpy."""
