"""Local methods: iterated conditional modes, mean field, Gibbs sampling, and large neighbourhood search."""
