"""Local methods: iterated conditional modes, mean field and Gibbs sampling."""
