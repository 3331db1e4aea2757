"""Rectangles of a plane, such as tiles and the windows around them."""

from itertools import product
from typing import NamedTuple

from sklearn_crf._threads import fixed_ranges


class Rectangle(NamedTuple):
    """A rectangle of a plane.

    Attributes
    ----------
    top : int
        First row.
    bottom : int
        The row after the last.
    left : int
        First column.
    right : int
        The column after the last.

    Examples
    --------
    >>> from sklearn_crf.graphs import Rectangle
    >>> tile = Rectangle(2, 4, 0, 3)
    >>> tile.shape, tile.grown(1, (5, 9))
    ((2, 3), Rectangle(top=1, bottom=5, left=0, right=4))
    """

    top: int
    bottom: int
    left: int
    right: int

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.bottom - self.top, self.right - self.left

    @property
    def slices(self) -> tuple[slice, slice]:
        """Of the plane."""
        return slice(self.top, self.bottom), slice(self.left, self.right)

    def grown(self, margin: int, shape: tuple[int, int]) -> "Rectangle":
        """The rectangle with a margin, as far as the plane goes.

        Parameters
        ----------
        margin : int
        shape : tuple of int
            Rows and columns of the plane.

        Returns
        -------
        Rectangle
        """
        return Rectangle(
            max(self.top - margin, 0),
            min(self.bottom + margin, shape[0]),
            max(self.left - margin, 0),
            min(self.right + margin, shape[1]),
        )

    def inside(self, other: "Rectangle") -> tuple[slice, slice]:
        """Slices of an array of another rectangle, which contains this one.

        Parameters
        ----------
        other : Rectangle

        Returns
        -------
        tuple of slice
        """
        rows, columns = slice(self.top - other.top, self.bottom - other.top), self.left - other.left
        return rows, slice(columns, columns + self.shape[1])


def tiles_of(shape: tuple[int, int], rows: int, columns: int) -> list[Rectangle]:
    """Rectangles of at most so many rows and columns that cover a plane, row by row.

    Parameters
    ----------
    shape : tuple of int
        Rows and columns of the plane.
    rows, columns : int
        Those of a tile.

    Returns
    -------
    list of Rectangle

    Examples
    --------
    >>> from sklearn_crf.graphs import tiles_of
    >>> [tile.shape for tile in tiles_of((4, 5), 4, 3)]
    [(4, 2), (4, 3)]
    """
    ranges = (fixed_ranges(n, -(-n // size)) for n, size in zip(shape, (rows, columns), strict=True))
    return [Rectangle(*down, *across) for down, across in product(*ranges)]
