"""What the results of an objective or generator must be for a model: checked where it is the user's own."""

from sklearn_crf.inference._results import as_finite
from sklearn_crf.models import FactorGraph, check_labels


def checked_loss(found, model, labels, *arguments, **options):
    """A loss of a model, its predicted labels in int32."""
    if not hasattr(found, "statistics") or not hasattr(found, "_replace"):
        raise TypeError(f"a Loss is needed, got {type(found).__name__}.")
    # In the precision that they have.
    names = ("log_table", "table_default") if isinstance(model, FactorGraph) else ("unary", "tables")
    values = {
        name: as_finite(getattr(found.statistics, name, None), f"statistics.{name}", getattr(model, name).shape, None)
        for name in names
    }
    terms, predicted = found.terms, found.predicted
    if not found.gap >= 0:
        raise ValueError(f"gap must not be negative, got {found.gap!r}.")
    return found._replace(
        statistics=found.statistics._replace(**values),
        terms=None if terms is None else as_finite(terms, "terms", (model.n_nodes,)),
        predicted=None if predicted is None else check_labels(model, predicted),
    )


def checked_model(found, model, *arguments, **options):
    """A model of the type and shape of another."""
    shape = model.n_nodes, model.n_columns
    if not isinstance(found, type(model)) or (found.n_nodes, found.n_columns) != shape:
        raise TypeError(f"a {type(model).__name__} of {shape[0]} nodes and up to {shape[1]} states is needed.")
    return found


def checked_assignment(found, model, *arguments, **options):
    """Labels of a model, in int32."""
    return check_labels(model, found)
