"""Features of nodes of which several share a row."""

import numpy as np

from sklearn_crf._numbers import column_sums, gram


class SharedRows:
    """Features of nodes of which some, one after the other, have the same row, and weights of their own each.

    Scores and gradients of all nodes of a row are columns of one product with the rows, of which no copies are made.
    """

    # rows: (n_rows, n_features)

    ndim = 2

    def __init__(self, rows, n_sharing):
        self.rows = rows
        self.n_sharing = n_sharing
        self.shape = len(rows) * n_sharing, rows.shape[1]
        self.dtype = rows.dtype

    def __len__(self):
        return self.shape[0]

    def __array__(self, dtype=None, copy=None):
        return np.repeat(self.rows, self.n_sharing, axis=0).astype(self.dtype if dtype is None else dtype, copy=False)

    def __getitem__(self, nodes):
        if isinstance(nodes, slice):
            start, stop, step = nodes.indices(len(self))
            bounds = divmod(start, self.n_sharing), divmod(max(start, stop), self.n_sharing)
            if step == 1 and not bounds[0][1] and not bounds[1][1]:
                return self.with_rows(self.rows[bounds[0][0] : bounds[1][0]])
        return self.rows[np.arange(len(self))[nodes] // self.n_sharing]

    def with_rows(self, rows):
        """The same nodes with other rows."""
        # rows: (n_rows, n_features)
        return SharedRows(rows, self.n_sharing)

    def scores(self, coef):
        """Products of the row of each node with the weights of its type."""
        # coef: (n_sharing, n_columns, n_features); returns: (n_nodes, n_columns)
        _, n_columns, n_features = coef.shape
        products = self.rows @ coef.reshape(-1, n_features).T.astype(self.dtype)
        return np.ascontiguousarray(products).reshape(-1, n_columns)

    def gradient(self, columns):
        """Derivatives of a scalar by the weights of each type, and by a constant of each, from those by scores."""
        # columns: (n_nodes, n_columns); returns: coef : (n_sharing, n_columns, n_features), float64, intercept :
        # (n_sharing, n_columns), float64
        shape = self.n_sharing, columns.shape[1]
        of_rows = columns.reshape(len(self.rows), -1)
        return gram(self.rows, of_rows).reshape(*shape, -1), column_sums(of_rows).reshape(shape)

    @classmethod
    def stacked(cls, parts):
        """Features of several examples one after the other."""
        return parts[0].with_rows(np.concatenate([part.rows for part in parts]))
