"""What a field with factors besides nodes and edges minimises, and which marginals belong to that."""

from typing import NamedTuple

from sklearn_crf.encoding import require_complete
from sklearn_crf.inference import (
    AutoMarginals,
    EdgeEntropyBP,
    Inference,
    JunctionTree,
    LoopyBP,
    MeanField,
    NormProductBP,
    TightenBound,
    TreeInference,
    TRWMessagePassing,
)
from sklearn_crf.objectives import Likelihood, Objective, Piecewise, Pseudolikelihood, RelaxedLikelihood

#: What stands for log Z.
FORMULATIONS = (
    "auto",
    "exact",
    "relaxation",
    "reparameterization",
    "joint",
    "dual",
    "edge_probabilities",
    "piecewise",
    "pseudolikelihood",
    "loopy",
    "mean_field",
)

_RELAXATIONS = ("relaxation", "reparameterization", "joint", "dual", "edge_probabilities")

# Those that need the label of every node.
_COMPLETE_LABELS = ("piecewise", "pseudolikelihood", "joint", "dual")

#: Entropies of relaxations.
ENTROPIES = ("trw", "trivial")


class Formulation(NamedTuple):
    """A choice of what is minimised, and of the marginals that go with it at prediction."""

    objective: Objective
    inference: Inference


def have_cycles(batches):
    """Whether a cycle leads through nodes, edges and factors of an example of some batch.

    Parameters
    ----------
    batches : sequence of Batch

    Returns
    -------
    bool
    """
    return not all(batch.example.is_forest for batch in batches)


def choose_formulation(formulation, has_cycles):
    """The formulation that ``"auto"`` stands for: exact on forests, relaxed where there are cycles.

    Parameters
    ----------
    formulation : str
    has_cycles : bool

    Returns
    -------
    str
    """
    if formulation != "auto":
        return formulation
    return "relaxation" if has_cycles else "exact"


def cyclic_nodes_together(formulation, entropy):
    """Nodes up to which small training examples with cycles are worked on together.

    Steps in the dual are for one example each. Of what is solved by itself for every model, tree-reweighted messages
    alone let examples that are done rest, but all of a batch are solved anew where those of one do not settle; junction
    trees would all be in memory at once, and so are tables of all edges in the joint problem.

    Parameters
    ----------
    formulation : str
    entropy : str

    Returns
    -------
    int
    """
    if formulation in ("piecewise", "pseudolikelihood"):
        return 4096
    by_messages = formulation in ("auto", "relaxation") and entropy == "trw"
    return 512 if by_messages or formulation == "joint" else 1


def check_solver(formulation, solver, fit_intercept, l1_ratio):
    """Raise ValueError where a formulation cannot be solved in the way that is asked for.

    Parameters
    ----------
    formulation : str
    solver : str
    fit_intercept : bool
    l1_ratio : float
    """
    if formulation in ("joint", "dual") and solver == "sgd":
        raise ValueError(f"formulation={formulation!r} needs solver='lbfgs': it has unknowns of its own.")
    if formulation == "dual" and (fit_intercept or l1_ratio):
        raise ValueError(
            "formulation='dual' needs fit_intercept=False and l1_ratio=0, since every weight has the penalty "
            "w'w / 2 there: a feature that is one everywhere stands in for the intercepts."
        )
    if l1_ratio and solver == "sgd":
        raise ValueError(f"l1_ratio={l1_ratio} needs solver='lbfgs': stochastic steps never reach zero.")


def check_labels(formulation, batches):
    """Raise ValueError where a formulation meets nodes without labels that it cannot sum out.

    Parameters
    ----------
    formulation : str
    batches : sequence of Batch
    """
    if formulation in _COMPLETE_LABELS:
        for batch in batches:
            require_complete(batch, f"formulation={formulation!r}")


def resolve_formulation(formulation, entropy, has_cycles, *, max_iter, tol):
    """The objective behind a name, and its marginals.

    Parameters
    ----------
    formulation : str
        One of ``FORMULATIONS`` but "auto".
    entropy : {"trw", "trivial"}
    has_cycles : bool
        Whether a training example has a cycle.
    max_iter : int
        Of the inner problem.
    tol : float
        Of the inner problem.

    Returns
    -------
    Formulation
    """
    limits = {"max_iter": max_iter, "tol": tol}
    if formulation == "exact":
        exact = JunctionTree() if has_cycles else TreeInference()
        return Formulation(Likelihood(exact), JunctionTree() if has_cycles else AutoMarginals())
    if formulation in _RELAXATIONS:
        if entropy == "trivial" and formulation == "edge_probabilities":
            raise ValueError("formulation='edge_probabilities' is about spanning trees: it needs entropy='trw'.")
        objective = RelaxedLikelihood(*_relaxation(formulation, entropy, limits))
        return Formulation(objective, objective.inference)
    if formulation in ("loopy", "mean_field"):
        inference = LoopyBP(**limits) if formulation == "loopy" else MeanField(**limits)
        return Formulation(Likelihood(inference), inference)
    objective = Piecewise() if formulation == "piecewise" else Pseudolikelihood()
    return Formulation(objective, AutoMarginals())


def _relaxation(formulation, entropy, limits):
    """What solves the relaxation, and what does where that does not converge."""
    if entropy == "trivial":
        return (EdgeEntropyBP(**limits),)
    if formulation == "edge_probabilities":
        return (TightenBound("optimal", **limits),)
    if formulation == "reparameterization":
        return (TightenBound(**limits),)
    return TRWMessagePassing("covering", **limits), TightenBound(**limits)


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
        objective = RelaxedLikelihood(_factor_relaxation(entropy, has_cycles, limits))
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


def _factor_relaxation(entropy, has_cycles, limits):
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
