"""Formulations of TRWCRF by name, with those of some options that they have."""

from sklearn_crf import learning

_KINDS = {
    "exact": learning.Exact,
    "relaxation": learning.Relaxation,
    "reparameterization": learning.Reparameterization,
    "joint": learning.JointRelaxation,
    "dual": learning.DualRelaxation,
    "edge_probabilities": learning.OptimalEdgeProbabilities,
    "piecewise": learning.PiecewiseTraining,
    "shared_pieces": learning.SharedPiecesTraining,
    "pseudolikelihood": learning.PseudolikelihoodTraining,
    "loopy": learning.LoopyTraining,
    "mean_field": learning.MeanFieldTraining,
}


def named_formulation(name, **options):
    """The formulation of that name; options that it has not are left out."""
    kind = _KINDS[name]
    known = kind().get_params()
    return kind(**{key: value for key, value in options.items() if key in known})
