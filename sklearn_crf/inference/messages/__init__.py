"""Message passing: belief propagation, tree-reweighted and sequential algorithms, and factors of any arity."""
