"""Message passing: belief propagation, tree-reweighted and sequential schemes, factors of any arity."""
