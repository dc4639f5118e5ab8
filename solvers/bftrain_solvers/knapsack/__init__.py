"""The multiple-choice knapsack over sizes, solved exactly in whole numbers.

Words used here: an *entry* is a row's number at a size; the *price* of a node is what it must earn; the *loss* of a
size is how far it stays behind the row's best size once nodes are paid for. With a good price almost every size
loses more than can be made good again, and what is left, the *core*, is small.
"""
