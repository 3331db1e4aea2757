"""Pipelines with the additional methods of fields, such as ``predict_topk`` and ``certify``."""

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn import pipeline
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from sklearn_crf._parameters import get_missing_label
from sklearn_crf._versions import restore_options
from sklearn_crf.encoding import missing_label_of_field
from sklearn_crf.estimators._joint_results import Certificates

__all__ = ["make_pipeline"]

# Words of errors that scikit-learn raises for arrays of more than two axes, and for lists of different lengths.
_NOT_ROWS = "while dim <= 2 is required by", "inhomogeneous shape"


def _last_step_has(method: str) -> Callable:
    def check(self: pipeline.Pipeline) -> bool:
        getattr(self.steps[-1][1], method)  # raises AttributeError if the last step lacks the method
        return True

    return check


class FieldPipeline(pipeline.Pipeline):
    """Pipeline of scikit-learn that ends in a field, and that has the additional methods of this field.

    Transformers before the field use the ``missing_label`` of the field if their ``missing_label`` is not set.

    Each additional method transforms X by the steps before the field, then calls the method of the field with the same
    arguments. The pipeline has a method if its last step has this method. In all other respects, the pipeline is like
    :class:`sklearn.pipeline.Pipeline`: ``fit``, ``predict``, ``predict_proba``, ``score``, parameters as
    ``<step>__<name>``, searches and ``clone``.
    """

    __setstate__ = restore_options

    def fit(self, X: Any, y: Any = None, **params: Any) -> "FieldPipeline":
        """Fit the steps one after the other."""
        before = missing_label_of_field.set(get_missing_label(self.steps[-1][1]))
        try:
            return super().fit(X, y, **params)
        except ValueError as error:
            rows_only = next(
                (step for _, step in self.steps[:-1] if type(step).__module__.startswith("sklearn.")), None
            )
            if rows_only is None or not any(words in str(error) for words in _NOT_ROWS):
                raise
            raise ValueError(
                f"{type(rows_only).__name__} transforms rows, but X contains sequences, images or volumes: wrap the "
                f"step, as in NodeTransformer({rows_only!r}) of sklearn_crf.preprocessing."
            ) from error
        finally:
            missing_label_of_field.reset(before)

    @available_if(_last_step_has("predict_topk"))
    def predict_topk(self, X: Any, k: int = 5, **params: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return the k best labelings of each example, best first, and the scores of these labelings."""
        # returns: labels, (n_examples,) of object; scores, (n_examples,) of object
        return self._ask("predict_topk", X, k=k, **params)

    @available_if(_last_step_has("predict_entity_proba"))
    def predict_entity_proba(self, X: Any, scheme: str = "IOB2", **params: Any) -> np.ndarray:
        """Return the entities of each example, with their probabilities."""
        # returns: (n_examples,) of object
        return self._ask("predict_entity_proba", X, scheme=scheme, **params)

    @available_if(_last_step_has("predict_edge_proba"))
    def predict_edge_proba(self, X: Any, **params: Any) -> np.ndarray:
        """Return, for each edge, the probability of each pair of labels."""
        return self._ask("predict_edge_proba", X, **params)

    @available_if(_last_step_has("log_likelihood"))
    def log_likelihood(self, X: Any, y: Any = None, **params: Any) -> Any:
        """Return the log-likelihood of the labels of each example."""
        return self._ask("log_likelihood", X, y, **params)

    @available_if(_last_step_has("energy"))
    def energy(self, X: Any, y: Any = None) -> np.ndarray:
        """Return the energy of the labels of each example: the negative score."""
        # returns: (n_examples,)
        return self._ask("energy", X, y)

    @available_if(_last_step_has("sample"))
    def sample(self, X: Any, n_samples: int = 1, **params: Any) -> np.ndarray:
        """Draw labelings of each example from the distribution of the field."""
        return self._ask("sample", X, n_samples, **params)

    @available_if(_last_step_has("certify"))
    def certify(self, X: Any, **params: Any) -> Certificates:
        """Return upper bounds on the scores of the best labelings, and the gaps between them and predicted scores."""
        return self._ask("certify", X, **params)

    @available_if(_last_step_has("models"))
    def models(self, X: Any, **params: Any) -> list:
        """Return the graphical model of each example, for use with any inference."""
        return self._ask("models", X, **params)

    def _ask(self, method: str, X: Any, *args: Any, **params: Any) -> Any:
        check_is_fitted(self)
        transformed = self[:-1].transform(X) if len(self) > 1 else X
        return getattr(self[-1], method)(transformed, *args, **params)


def make_pipeline(*steps: Any, memory: Any = None, verbose: bool = False) -> FieldPipeline:
    """Make a :class:`FieldPipeline`; the name of each step is the name of its class in lower case.

    Parameters
    ----------
    *steps : estimators
        Transformers, followed by a field.
    memory : str or object with the joblib.Memory interface, optional
        Where fitted transformers are cached.
    verbose : bool, default=False
        Whether to print the time of each step.

    Returns
    -------
    FieldPipeline

    Examples
    --------
    >>> from sklearn.preprocessing import StandardScaler
    >>> from sklearn_crf import TRWCRF
    >>> from sklearn_crf.pipeline import make_pipeline
    >>> from sklearn_crf.preprocessing import NodeTransformer
    >>> list(make_pipeline(NodeTransformer(StandardScaler()), TRWCRF()).named_steps)
    ['nodetransformer', 'trwcrf']
    """
    named = pipeline.make_pipeline(*steps).steps
    return FieldPipeline(named, memory=memory, verbose=verbose)
