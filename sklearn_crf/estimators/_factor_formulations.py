"""What a field with factors besides nodes and edges minimises, and which marginals belong to that."""

from sklearn_crf.estimators._formulations import Formulation, resolve_formulation
from sklearn_crf.inference import JunctionTree, NormProductBP
from sklearn_crf.objectives import Likelihood, RelaxedLikelihood

#: Formulations that take factors of any arity.
FACTOR_FORMULATIONS = ("exact", "relaxation", "piecewise", "pseudolikelihood", "loopy")


def resolve_factor_formulation(formulation, entropy, has_cycles, *, max_iter, tol):
    """The objective behind a name for examples with factors, and its marginals.

    Parameters
    ----------
    formulation : str
        One of ``FORMULATIONS`` but "auto".
    entropy : {"trw", "trivial"}
    has_cycles : bool
        Whether a cycle leads through nodes, edges and factors of a training example.
    max_iter : int
        Of the inner problem.
    tol : float
        Of the inner problem.

    Returns
    -------
    Formulation

    Raises
    ------
    ValueError
        If the formulation is for nodes and edges alone.
    """
    if formulation not in FACTOR_FORMULATIONS:
        raise ValueError(
            f"formulation={formulation!r} is for nodes and edges alone, but examples have other factors: take one of "
            f"{', '.join(FACTOR_FORMULATIONS)}."
        )
    limits = {"max_iter": max_iter, "tol": tol}
    if formulation == "exact":
        return Formulation(Likelihood(JunctionTree()), JunctionTree())
    if formulation == "relaxation":
        objective = RelaxedLikelihood(_relaxation(entropy, has_cycles, limits))
        return Formulation(objective, objective.inference)
    return resolve_formulation(formulation, entropy, has_cycles, **limits)


def nodes_together(formulation, entropy):
    """Nodes of training examples with factors that are worked on together.

    Tables of many listed states take longer to lay out than one small example to be done with. By junction trees the
    tables of all examples of a batch are in memory at once, and trees that cover a graph are chosen for each.

    Parameters
    ----------
    formulation : str
    entropy : str

    Returns
    -------
    int
    """
    together = formulation in ("piecewise", "pseudolikelihood") or (formulation, entropy) == ("relaxation", "trivial")
    return 512 if together else 1


def _relaxation(entropy, has_cycles, limits):
    if entropy == "trivial":
        return NormProductBP(**limits)
    if not has_cycles:
        # On forests the counting numbers of trees are those of Bethe, for factors of any arity.
        return NormProductBP("bethe", **limits)
    return NormProductBP("trw", edge_probabilities="covering", **limits)


def have_factors(batches):
    """Whether an example of some batch has factors besides nodes and edges.

    Parameters
    ----------
    batches : sequence of Batch

    Returns
    -------
    bool
    """
    return any(batch.example.has_factors for batch in batches)


def check_tree_reweighting(formulation, entropy, batches):
    """Raise ValueError where a relaxation by spanning trees meets factors that are no edges.

    Parameters
    ----------
    formulation : str
    entropy : str
    batches : sequence of Batch
        Of which one has a cycle.
    """
    if (formulation, entropy) != ("relaxation", "trw"):
        return
    for batch in batches:
        for name, factors in batch.example.factors.items():
            if len(factors.scope) and factors.scope.shape[1] > 2:
                raise ValueError(
                    f"entropy='trw' is about spanning trees of edges, but X[{batch.members[0]}] has factors of type "
                    f"{name!r} with {factors.scope.shape[1]} nodes: use entropy='trivial'."
                )
