"""Rectangles in a plane, such as tiles and the windows around them."""

from itertools import product
from typing import NamedTuple

from sklearn_crf._threads import split_into_ranges


class Rectangle(NamedTuple):
    """A range of rows and a range of columns in a plane."""

    top: int
    bottom: int
    left: int
    right: int

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and number of columns."""
        return self.bottom - self.top, self.right - self.left

    @property
    def slices(self) -> tuple[slice, slice]:
        """Slices of the plane that select the rectangle."""
        return slice(self.top, self.bottom), slice(self.left, self.right)

    def grown(self, margin: int, shape: tuple[int, int]) -> "Rectangle":
        """Return the rectangle with a margin on all sides, clipped to the plane."""
        return Rectangle(
            max(self.top - margin, 0),
            min(self.bottom + margin, shape[0]),
            max(self.left - margin, 0),
            min(self.right + margin, shape[1]),
        )

    def inside(self, other: "Rectangle") -> tuple[slice, slice]:
        """Return the slices that select this rectangle in an array of a larger rectangle, ``other``."""
        rows, columns = slice(self.top - other.top, self.bottom - other.top), self.left - other.left
        return rows, slice(columns, columns + self.shape[1])


def cut_tiles(shape: tuple[int, int], rows: int, columns: int) -> list[Rectangle]:
    """Return rectangles of at most ``rows`` by ``columns`` that cover a plane, row by row."""
    ranges = (split_into_ranges(n, -(-n // size)) for n, size in zip(shape, (rows, columns), strict=True))
    return [Rectangle(*down, *across) for down, across in product(*ranges)]
