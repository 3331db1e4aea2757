"""Data frames out of transformers of nodes, where ``set_output`` asks for them."""

from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from sklearn import get_config

from sklearn_crf.encoding import object_array


class FrameOutput:
    """The method ``set_output`` of transformers whose results may be rows, chains or lattices."""

    def set_output(self, *, transform: str | None = None) -> Self:
        """Choose what ``transform`` and ``fit_transform`` return.

        Parameters
        ----------
        transform : {"default", "pandas"} or None, default=None
            "pandas": rows become a data frame and each chain of a list becomes one, with the names of the features as
            columns, which a field keeps in ``feature_names_in_``. Images and other lattices have no rows of a table
            and stay arrays, graphs stay examples. None changes nothing.

        Returns
        -------
        FrameOutput
            self

        Raises
        ------
        ValueError
            If ``transform`` is none of these.
        """
        if transform not in (None, "default", "pandas"):
            raise ValueError(f'transform must be "default", "pandas" or None, got {transform!r}.')
        if transform is not None:
            self._sklearn_output_config = {"transform": transform}  # the name that scikit-learn's clone copies
        return self

    def _in_container(self, result: Any, X: Any) -> Any:
        config = getattr(self, "_sklearn_output_config", {}).get("transform", get_config()["transform_output"])
        if config != "pandas":
            return result
        if isinstance(result, np.ndarray) and result.dtype == object:
            return object_array([self._frame_of(part, x) for part, x in zip(result, X, strict=True)])
        return self._frame_of(result, X)

    def _frame_of(self, rows: Any, x: Any) -> Any:
        if sp.issparse(rows):
            raise ValueError(
                f"{type(self).__name__} returned a sparse matrix, which set_output(transform='pandas') makes no data "
                "frame of: ask the transformer for dense output, or use set_output(transform='default')."
            )
        if not isinstance(rows, np.ndarray) or rows.ndim != 2:
            return rows
        import pandas

        names = self.get_feature_names_out() if hasattr(self, "get_feature_names_out") else None
        return pandas.DataFrame(rows, index=getattr(x, "index", None), columns=names, copy=False)
