"""Reader of text files of numbers, in chunks and within a size limit; errors name the line or word."""

import bz2
import codecs
import gzip
import lzma
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from sklearn_crf._numbers import MAX_INT32, as_integer
from sklearn_crf.datasets import _tuning
from sklearn_crf.datasets._words import read_numbers

LARGEST = float(np.finfo(np.float64).max)

# Functions that open compressed files, by suffix; other files are plain text.
_OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}


def read_numbers_of(path, *, comment=None, max_bytes=_tuning.MAX_BYTES, any_heading=False, hint=""):
    """Return the leading word of a file in capitals ("" if there is none), and a reader of the numbers that follow.

    The file is decompressed if its name ends in ``.gz``, ``.bz2`` or ``.xz``. The rest of a line after ``comment`` is
    skipped. Memory grows with the number of words read, not with the sizes that the file declares. A text that is too
    long, damaged or does not consist of numbers raises ValueError, which names the line. With ``any_heading``, the
    first word is the leading word even if it begins with a digit. ``hint`` is added to errors about words that are not
    numbers.
    """
    path = _convert_to_path(path)
    max_bytes = as_integer(max_bytes, "max_bytes", highest=2**63)
    chunks = _read_chunks(path, comment, max_bytes)
    heading, rest, line = _split_heading(chunks, any_heading)
    parts, tiny, n_before, buffer, is_last = [], [], 0, rest, False
    while not is_last:
        chunk = next(chunks, b"")
        is_last = not chunk
        buffer += chunk
        # A number and the space after it need at least two bytes. The last number may need only one byte.
        values = np.empty(len(buffer) // 2 + 1)
        found: list[tuple[int, bytes]] = []
        n_read, position, n_lines, is_number = read_numbers(buffer, 0, is_last, values, found)
        tiny += [(n_before + number, word) for number, word in found]
        n_before += n_read
        line += n_lines
        buffer = buffer[position:]
        if not is_number or len(buffer) > _tuning.LONGEST_WORD:
            word = buffer[:20].split()[0].decode("ascii", "replace")
            raise ValueError(f"{path}, line {line}: a number is needed, found {word!r}.{hint}")
        parts.append(values[:n_read].copy())
    return heading, NumberReader(np.concatenate(parts), path, bool(heading), tiny)


def _convert_to_path(path):
    """Convert a string or a path to Path; raise TypeError for any other object."""
    if not isinstance(path, str | PathLike):
        raise TypeError(f"path must be a string or a path, got {path!r}.")
    return Path(path)


def _open(path, mode):
    opener: Callable[..., Any] = _OPENERS.get(path.suffix.lower(), open)
    return opener(path, mode)


def get_format_suffix(path):
    """Return the suffix that identifies the format of a file, in lower case, such as ".lg" for "model.LG.xz"."""
    path = _convert_to_path(path)
    path = path.with_suffix("") if path.suffix.lower() in _OPENERS else path
    return path.suffix.lower()


def count_words_by_line(path):
    """Return the number of words in each non-blank line of a file that was already read once."""
    with _open(_convert_to_path(path), "rb") as file:
        return [len(words) for words in map(bytes.split, file) if words]


def _read_chunks(path, comment, max_bytes):
    n_bytes, in_comment = 0, False
    with _open(path, "rb") as file:
        while True:
            try:
                chunk = file.read(_tuning.CHUNK)
            except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
                # Operating system errors have an errno; errors from damaged data have none.
                if getattr(error, "errno", None) is not None:
                    raise
                raise ValueError(f"{path} is a damaged {path.suffix} file: {error}") from error
            n_bytes += len(chunk)
            if n_bytes > max_bytes:
                raise ValueError(f"{path} holds more than max_bytes={max_bytes} bytes of text.")
            if not chunk:
                return
            if n_bytes == len(chunk):
                chunk = chunk.removeprefix(codecs.BOM_UTF8) or b" "
            if comment is not None:
                chunk, in_comment = _remove_comments(chunk, comment, in_comment)
            # A chunk may consist of comments only, but an empty chunk would mean the end of the file.
            yield chunk or b" "


def _remove_comments(chunk, comment, in_comment):
    lines = chunk.split(b"\n")
    if in_comment:
        lines[0] = b""
        in_comment = len(lines) == 1
    in_comment = in_comment or comment in lines[-1]
    return b"\n".join(line.split(comment, 1)[0] for line in lines), in_comment


def _split_heading(chunks: Iterator[bytes], any_heading: bool) -> tuple[str, bytes, int]:
    """Return the leading word in capitals (or ""), the text after this word, and the line where the text begins."""
    text = b""
    for chunk in chunks:
        text += chunk
        if text.split() and (len(text.split(None, 1)) > 1 or len(text.lstrip()) > _tuning.LONGEST_WORD):
            break
    words = text.split(None, 1)
    if not words or not (any_heading or words[0][:1].isalpha()):
        return "", text, 1
    start = text.index(words[0]) + len(words[0])
    return words[0][:20].decode("ascii", "replace").upper(), text[start:], 1 + text.count(b"\n", 0, start)


class NumberReader:
    """Reader that returns the numbers of a file in order, and checks each number."""

    # values: (n,) float64; has_heading: whether the file has a leading word
    # tiny: (index, word) of each number that is too small for the full precision of a double

    def __init__(self, values, path, has_heading, tiny):
        self.values = values
        self._tiny = np.array([number for number, _ in tiny], dtype=np.int64)
        self._words = [word.decode("ascii") for _, word in tiny]
        self.path = path
        self.position = 0
        self._n_before = int(has_heading)

    @property
    def n_left(self):
        """Number of numbers that have not been read yet."""
        return len(self.values) - self.position

    def take(self, n, what, lowest=-np.inf, highest=np.inf):
        """Return the next n numbers as float64."""
        self._require(n, what)
        start, self.position = self.position, self.position + n
        taken = self.values[start : self.position]
        # Test for valid values, not for invalid ones, because comparisons with NaN are false.
        inside = (taken >= lowest) & (taken <= highest)
        if not inside.all():
            self.refuse(int(np.argmin(inside)) - n, f"{what} must {_bounds(lowest, highest)}")
        return taken

    def integers(self, n, what, lowest=0, highest=MAX_INT32):
        """Return the next n numbers as int64."""
        return self.whole(self.take(n, what, lowest, highest), what)

    def whole(self, numbers, what):
        """Convert numbers from a file to int64; raise ValueError if a number is not an integer."""
        fractional = numbers != np.floor(numbers)
        if fractional.any():
            raise ValueError(f"{self.path}: {what} must be integers, found {numbers[np.argmax(fractional)]:g}.")
        return numbers.astype(np.int64)

    def integer(self, what, lowest=0, highest=MAX_INT32):
        """Return the next number as an int."""
        return int(self.integers(1, what, lowest, highest)[0])

    def logarithms(self, place):
        """Return the natural logarithms of the numbers at the given positions; only the number 0 gives -inf."""
        # place: (n,), ascending
        with np.errstate(divide="ignore"):
            found = np.log(self.values[place])
        if len(place):
            for k in range(*np.searchsorted(self._tiny, (place[0], place[-1] + 1))):
                own = np.searchsorted(place, self._tiny[k])
                if place[own] == self._tiny[k]:
                    try:
                        found[own] = float(Decimal(self._words[k]).ln())
                    except ArithmeticError:
                        self.refuse(self._tiny[k] - self.position, f"the exponent of {self._words[k]} is out of range")
        return found

    def rows(self, n_rows, what, lowest, highest, hint="", logarithms=False):
        """Read rows, each beginning with its length; return the rows' numbers as float64, and where each row starts."""
        # hint: text added to errors about numbers below ``lowest``; logarithms: whether to return logarithms
        values, start = self.values, self.position
        self._require(n_rows, what)
        counts = np.empty(n_rows, dtype=np.int64)
        for row in range(n_rows):
            count = values[self.position] if self.n_left else -1.0
            if not (count >= 0 and count.is_integer()):
                self.integer(f"the length of {what} {row}")
            self.position += 1
            self._require(count, f"{what} {row}")
            counts[row] = count
            self.position += int(count)
        ptr = np.concatenate(([0], np.cumsum(counts)))
        # Row r is preceded by the numbers of earlier rows and by r + 1 lengths.
        place = start + np.repeat(np.arange(1, n_rows + 1), counts) + np.arange(ptr[-1])
        taken = values[place]
        inside = (taken >= lowest) & (taken <= highest)
        if not inside.all():
            k = int(np.argmin(inside))
            row = int(np.searchsorted(ptr, k, side="right")) - 1
            hint = hint if taken[k] < lowest else ""
            self.refuse(place[k] - self.position, f"{what} {row} must {_bounds(lowest, highest)}", hint)
        return self.logarithms(place) if logarithms else taken, ptr

    def _require(self, n, what):
        if n > self.n_left:
            raise ValueError(f"{self.path} ends before {what}: {n:.0f} numbers are needed, {self.n_left} are left.")

    def refuse(self, place, problem, hint=""):
        """Raise ValueError for the number that is ``place`` positions after the next unread number."""
        number = self.position + place
        raise ValueError(
            f"{self.path}, word {number + self._n_before + 1}: {problem}, found {self.values[number]:.17g}.{hint}"
        )

    def end(self) -> None:
        """Raise ValueError unless all numbers were read."""
        if self.n_left:
            found = self.values[self.position]
            raise ValueError(
                f"{self.path} continues after its expected end: word {self._n_before + self.position + 1} is {found:g}."
            )


def _bounds(lowest, highest):
    if highest == LARGEST:
        return "be finite or -inf" if lowest == -np.inf else f"be finite and at least {lowest:g}"
    return f"be between {lowest:.10g} and {highest:.10g}"


@contextmanager
def name_file_in_errors(path):
    """Return a context manager that adds the name of the file to a ValueError."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def read_lines(path, max_bytes):
    """Return the lines of a file as bytes, without line ends and without a UTF-8 byte order mark."""
    path, max_bytes = _convert_to_path(path), as_integer(max_bytes, "max_bytes", highest=2**63)
    text = b"".join(_read_chunks(path, None, max_bytes))
    # Old Macintosh files end lines in a carriage return only.
    return [line.removesuffix(b"\r") for line in text.split(b"\n" if b"\n" in text else b"\r")]


def join_integers(values):
    """Return integers as text, separated by spaces."""
    return " ".join(str(int(value)) for value in values)


def write_text(path, text):
    """Write a file in UTF-8, compressed if its name ends in ``.gz``, ``.bz2`` or ``.xz``."""
    with _open(_convert_to_path(path), "wb") as file:
        file.write(text.encode())
