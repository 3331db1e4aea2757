"""Canvases of one example: cells of a grid, a strip, or points of the plane."""

import numpy as np


class GridCanvas:
    """Nodes of a 2-D lattice, a pixel each."""

    stacked = False

    def __init__(self, shape):
        self.shape = shape

    def draw(self, ax, colours):
        """Draw one colour per node."""
        # colours: (N, 4)
        ax.imshow(colours.reshape(*self.shape, 4), interpolation="nearest")
        _bare(ax)

    @property
    def size(self):
        """Inches of one panel, (width, height)."""
        height, width = self.shape
        return 2.6, min(max(2.6 * height / width, 0.6), 5.2)


class ChainCanvas:
    """Nodes of a chain, from left to right."""

    stacked = True
    size = (8.0, 0.55)

    def __init__(self, shape):
        self.shape = shape

    def draw(self, ax, colours):
        """Draw one colour per node: as :meth:`GridCanvas.draw`."""
        ax.imshow(colours[np.newaxis], interpolation="nearest", aspect="auto")
        _bare(ax)


class GraphCanvas:
    """Nodes at given places, joined by their edges."""

    # positions: (N, 2); edges: (E, 2)

    stacked = False
    size = (3.2, 3.2)

    def __init__(self, positions, edges):
        self.shape = (len(positions),)
        self.positions = positions
        self.edges = edges

    def draw(self, ax, colours):
        """Draw one colour per node: as :meth:`GridCanvas.draw`."""
        from matplotlib.collections import LineCollection

        ax.add_collection(LineCollection(self.positions[self.edges], colors="#b5b5b5", linewidths=0.7, zorder=1))
        radius = np.clip(120.0 / np.sqrt(max(len(self.positions), 1)), 2.0, 10.0)
        ax.scatter(*self.positions.T, s=radius**2, c=colours, edgecolors="#555555", linewidths=0.4, zorder=2)
        ax.set_aspect("equal")
        ax.margins(0.05)
        _bare(ax)


def make_canvas(shape, positions=None, edges=None):
    """The canvas of an example with labels of some shape, at positions or on a lattice."""
    # positions: (N, 2); edges: (E, 2)
    if positions is None:
        if len(shape) not in (1, 2):
            raise ValueError(f"Labels of shape {shape} cannot be drawn: pass one slice, of one or two axes.")
        return GridCanvas(shape) if len(shape) == 2 else ChainCanvas(shape)
    n_nodes = int(np.prod(shape))
    positions = np.asarray(positions, dtype=np.float64)
    if positions.shape != (n_nodes, 2):
        raise ValueError(f"positions must have shape ({n_nodes}, 2), one place per node, got {positions.shape}.")
    edges = np.zeros((0, 2), dtype=np.intp) if edges is None else np.asarray(edges)
    if edges.ndim != 2 or edges.shape[1] != 2 or (edges.size and not 0 <= edges.min() <= edges.max() < n_nodes):
        raise ValueError(f"edges must have shape (n_edges, 2) and name nodes below {n_nodes}, got {edges.shape}.")
    return GraphCanvas(positions, edges)


def _bare(ax):
    ax.set_xticks([])
    ax.set_yticks([])
    for spine in ax.spines.values():
        spine.set_color("#b5b5b5")
