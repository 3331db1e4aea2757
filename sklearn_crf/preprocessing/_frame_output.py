"""Data frames as output of node transformers, if requested with ``set_output``."""

from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from sklearn import get_config

from sklearn_crf.encoding import make_object_array


class FrameOutput:
    """Mixin with the method ``set_output`` for transformers that return rows, chains or lattices."""

    def set_output(self, *, transform: str | None = None) -> Self:
        """Choose the container that ``transform`` and ``fit_transform`` return.

        Parameters
        ----------
        transform : {"default", "pandas"} or None, default=None
            With "pandas", plain rows become a data frame, and each chain of a list becomes its own data frame. Columns
            have the names of the features, which a field stores in ``feature_names_in_``. Images and other lattices
            remain arrays, because they are not tables. Graphs remain examples. None leaves the setting unchanged.

        Returns
        -------
        FrameOutput
            self

        Raises
        ------
        ValueError
            If ``transform`` has another value.
        """
        if transform not in (None, "default", "pandas"):
            raise ValueError(f'transform must be "default", "pandas" or None, got {transform!r}.')
        if transform is not None:
            self._sklearn_output_config = {"transform": transform}  # attribute that scikit-learn's clone copies
        return self

    def _wrap_in_container(self, result: Any, X: Any) -> Any:
        config = getattr(self, "_sklearn_output_config", {}).get("transform", get_config()["transform_output"])
        if config != "pandas":
            return result
        if isinstance(result, np.ndarray) and result.dtype == object:
            return make_object_array([self._build_frame(part, x) for part, x in zip(result, X, strict=True)])
        return self._build_frame(result, X)

    def _build_frame(self, rows: Any, x: Any) -> Any:
        if sp.issparse(rows):
            raise ValueError(
                f"{type(self).__name__} returned a sparse matrix, which set_output(transform='pandas') cannot convert "
                "to a data frame: ask the transformer for dense output, or use set_output(transform='default')."
            )
        if not isinstance(rows, np.ndarray) or rows.ndim != 2:
            return rows
        import pandas

        names = self.get_feature_names_out() if hasattr(self, "get_feature_names_out") else None
        return pandas.DataFrame(rows, index=getattr(x, "index", None), columns=names, copy=False)
