"""Local methods: iterated conditional modes, mean field, Gibbs sampling, and search in large neighbourhoods."""
