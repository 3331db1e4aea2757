"""Sum-product on two states made ready for messages that are one number each, the log-odds of the second state."""

from typing import NamedTuple

import numpy as np

from sklearn_crf.inference._field import SUM_PROBABILITY
from sklearn_crf.kernels.odds import send_odds

# The kernel reads and writes vectors of up to 32 bytes.
_PADDING = 8


def takes_odds(field):
    """Whether messages of a field can be log-odds, and gain by it.

    Plain belief propagation works on probabilities without any exponential, which is faster.
    """
    return field.semiring == SUM_PROBABILITY and field.tables.shape[3] == 2 and len(field.appearance) > 0


class OddsField(NamedTuple):
    r"""The arrays of the kernel.

    A table is :math:`r(a) + c(b) + J [a = b]` up to a constant. The parts r and c are taken to the nodes, and the
    messages of a reparameterised model differ from those of the original by them.

    Attributes
    ----------
    arrays : tuple of ndarray
        Graph, unary, coupling and power, as the kernel takes them.
    offset : ndarray of shape (2E,), float64
        What the edge of a slot adds to the log-odds of the node there.
    largest_degree : int
    """

    arrays: tuple
    offset: np.ndarray
    largest_degree: int

    @classmethod
    def of(cls, field):
        """The same scores as those of a field that :func:`takes_odds`."""
        dtype = field.unary.dtype
        edge, side = field.half_edge >> 1, field.half_edge & 1
        coupling, first_end, second_end = _split_tables(field)
        # Tables came divided by the edge probabilities, messages are raised to their power.
        offset = np.where(side, second_end[edge], first_end[edge]) * field.appearance[edge]
        node = np.repeat(np.arange(len(field.unary)), np.diff(field.ptr))
        with np.errstate(divide="ignore"):
            unary = np.log(field.unary[:, 1], dtype=np.float64) - np.log(field.unary[:, 0], dtype=np.float64)
        unary += np.bincount(node, weights=offset, minlength=len(unary))
        strength = np.copysign(np.exp(-np.abs(coupling)), coupling)
        arrays = (
            field.ptr,
            field.neighbor,
            field.reverse,
            unary.astype(dtype),
            _padded(strength[edge], dtype),
            _padded(field.appearance[edge], dtype),
        )
        return cls(arrays, offset, int(np.diff(field.ptr).max(initial=0)))

    def work_space(self):
        """What the kernel needs for itself; one for each thread."""
        return np.empty(self.largest_degree + _PADDING, self.arrays[3].dtype)

    def send(self, odds, *how):
        """Let nodes send messages in turn, see the kernel."""
        return send_odds(*self.arrays, odds, *how)

    def odds_of(self, messages):
        """Log-odds of messages given as probabilities."""
        dtype = messages.dtype
        return _padded(np.log(messages[:, 1] / messages[:, 0], dtype=np.float64) - self.offset, dtype)

    def write_messages(self, odds, messages):
        """Probabilities of messages given as log-odds."""
        x = odds[: len(messages)] + self.offset
        messages[:, 0] = 1 / (1 + np.exp(x))
        messages[:, 1] = 1 / (1 + np.exp(-x))


def _split_tables(field):
    """Coupling of each edge, and what its table adds to the log-odds of its first and its second end, float64."""
    tables = field.tables.astype(np.float64)
    parts = (
        (tables[..., 0, 0] + tables[..., 1, 1] - tables[..., 0, 1] - tables[..., 1, 0]) / 2,
        (tables[..., 1, 0] + tables[..., 1, 1] - tables[..., 0, 0] - tables[..., 0, 1]) / 2,
        (tables[..., 0, 1] + tables[..., 1, 1] - tables[..., 0, 0] - tables[..., 1, 0]) / 2,
    )
    if field.is_tied:
        return [part[field.edge_type, 0] for part in parts]
    return [np.einsum("er,er->e", field.edge_weight, part[field.edge_type]) for part in parts]


def _padded(values, dtype):
    padded = np.ones(len(values) + _PADDING, dtype)
    padded[: len(values)] = values
    return padded
