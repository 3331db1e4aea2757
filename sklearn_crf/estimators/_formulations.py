"""What a field trained by (an approximation of) the likelihood minimises, by name."""

from sklearn_crf.inference import JunctionTree, LoopyBP, MeanField, TreeInference
from sklearn_crf.objectives import Likelihood, Pseudolikelihood

#: What stands for log Z.
FORMULATIONS = ("auto", "exact", "loopy", "mean_field", "pseudolikelihood")


def resolve_formulation(formulation, graphs):
    """The objective behind a name.

    Parameters
    ----------
    formulation : str
        One of ``FORMULATIONS``; "auto" is exact where all graphs are forests, and loopy otherwise.
    graphs : iterable of Graph
        Of the training examples.

    Returns
    -------
    Objective
    """
    if formulation == "pseudolikelihood":
        return Pseudolikelihood()
    if formulation == "mean_field":
        return Likelihood(MeanField())
    forests = all(graph.is_forest for graph in graphs)
    if formulation == "loopy" or (formulation == "auto" and not forests):
        return Likelihood(LoopyBP())
    return Likelihood(TreeInference() if forests else JunctionTree())
