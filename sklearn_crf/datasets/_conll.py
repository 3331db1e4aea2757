"""Reader and writer of sentences in columns, one line per token, as used in the CoNLL shared tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from sklearn_crf.datasets import _text, _tuning
from sklearn_crf.datasets._uai import PathLike
from sklearn_crf.encoding import convert_to_label_array, mask_missing_nodes

_DOCUMENT = "-DOCSTART-"
# Comments that start a document in CoNLL-U and CoNLL-2012.
_DOCUMENT_COMMENTS = "# newdoc", "#begin document"


class ColumnText(NamedTuple):
    """Sentences that were read from a file in columns."""

    columns: tuple[list[list[str]], ...]  # for each column, the entries of each sentence
    documents: np.ndarray  # (n_sentences,) int, index of the document that contains each sentence, from 0
    comments: list[list[str]]  # for each sentence, the comments before or inside it


def read_conll(
    path: PathLike,
    *,
    separator: str | None = None,
    comment: str | None = None,
    max_bytes: int = _tuning.MAX_BYTES,
) -> ColumnText:
    """Read sentences in columns, with a line for each token and a blank line after each sentence.

    A line that begins with ``-DOCSTART-`` starts a document, and so does a comment that begins with ``# newdoc``
    (CoNLL-U) or ``#begin document`` (CoNLL-2012). All other lines must have equally many columns.

    Parameters
    ----------
    path : str or path
        UTF-8 text file; compressed if its name ends in ``.gz``, ``.bz2`` or ``.xz``.
    separator : str, optional
        Text between columns, such as a tab. None is any number of spaces and tabs.
    comment : str, optional
        Prefix of comment lines, such as "# " in CoNLL-U and "#" in CoNLL-2012. None means that there are no comments:
        in CoNLL-2000 and CoNLL-2003 "#" is a token.
    max_bytes : int, default=2**30
        Maximum size of the decompressed text. A longer text raises an error.

    Returns
    -------
    ColumnText
        ``columns`` is a tuple with a list of sentences for each column; each sentence is a list of str. ``documents``,
        (n_sentences,), is the index of each sentence's document, for use as groups in cross-validation. ``comments``
        has a list for each sentence.

    Raises
    ------
    ValueError
        If a line does not have as many columns as the first line, or the file is too long, damaged or not in UTF-8.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from sklearn_crf.datasets import read_conll, write_conll
    >>> words, tags = [["Ann", "ran"], ["Stop"]], [["B-PER", "O"], ["O"]]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_conll(Path(folder, "names.txt"), [words, tags])
    ...     found = read_conll(Path(folder, "names.txt"))
    >>> found.columns[1]
    [['B-PER', 'O'], ['O']]
    """
    for name, value in (("separator", separator), ("comment", comment)):
        if value is not None and not (isinstance(value, str) and value):
            raise ValueError(f"{name} must be a non-empty string or None, got {value!r}.")
    sentences: list[list[list[str]]] = []
    comments: list[list[str]] = []
    documents: list[int] = []
    tokens: list[list[str]] = []
    notes: list[str] = []
    document, first = 0, None
    # An appended blank line ends the last sentence.
    for n, line in enumerate([*_text.read_lines(path, max_bytes), b""], 1):
        text = _decode(line, path, n)
        is_comment = comment is not None and text.startswith(comment)
        is_mark = text.startswith(_DOCUMENT_COMMENTS if is_comment else _DOCUMENT)
        if tokens and (is_mark or not (is_comment or line.strip())):
            sentences.append(tokens)
            comments.append(notes)
            documents.append(document)
            tokens, notes = [], []
        if is_mark:
            document += bool(documents) and documents[-1] == document
        if is_comment:
            notes.append(text)
        elif not is_mark and line.strip():
            # Split as bytes: str.split would also split at non-ASCII white space, which belongs to tokens.
            parts = [part.decode() for part in line.split(None if separator is None else separator.encode())]
            first = (len(parts), n) if first is None else first
            if len(parts) != first[0]:
                raise ValueError(f"{path}, line {n} has {len(parts)} columns, but line {first[1]} has {first[0]}.")
            tokens.append(parts)
    n_columns = 0 if first is None else first[0]
    columns = tuple([[token[c] for token in sentence] for sentence in sentences] for c in range(n_columns))
    return ColumnText(columns, np.array(documents, dtype=np.int64), comments)


def _decode(line, path, n):
    """Decode a line, or raise ValueError that names the line if it is not in UTF-8."""
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}, line {n} is not in UTF-8: {error}. Convert the file to UTF-8 first.") from error


def write_conll(
    path: PathLike,
    columns: Sequence[Sequence[Sequence[str]]],
    *,
    separator: str = " ",
    documents: ArrayLike | None = None,
    comments: Sequence[Sequence[str]] | None = None,
) -> None:
    """Write sentences in columns, with a line for each token and a blank line after each sentence.

    The CoNLL evaluation script expects the true and the predicted labels in the last two columns.

    Parameters
    ----------
    path : str or path
        UTF-8 text file; compressed if its name ends in ``.gz``, ``.bz2`` or ``.xz``.
    columns : sequence of columns
        Each column is a list of sentences, which are sequences of str: words, or labels as returned by ``predict``.
        Series are read by position, whatever their index.
    separator : str, default=" "
        Text between columns.
    documents : array-like of shape (n_sentences,), optional
        Document of each sentence. A ``-DOCSTART-`` line is written at the beginning and wherever the document changes.
    comments : sequence of sequences of str, optional
        Comment lines to write before each sentence. All comments begin with the same mark, such as "# ".

    Raises
    ------
    ValueError
        If columns differ in their number of sentences or in the lengths of a sentence, or if an entry or a document is
        missing, such as None, NaN or a masked value. Also if a sentence, entry or comment could not be read back, for
        instance because it is empty or contains a line break or the separator, or because the line of a token begins
        like the comments.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from sklearn_crf.datasets import write_conll
    >>> words, true, predicted = [["Ann", "ran"]], [["B-PER", "O"]], [["O", "O"]]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_conll(Path(folder, "predicted.txt"), [words, true, predicted])
    ...     print(Path(folder, "predicted.txt").read_text().rstrip())
    Ann B-PER O
    ran O O
    """
    if not (isinstance(separator, str) and separator):
        raise ValueError(f"separator must be a non-empty string, got {separator!r}.")
    if isinstance(columns, str) or not len(columns):
        raise ValueError(f"columns must be a list of columns, each of which is a list of sentences, got {columns!r}.")
    # Lists are read by position, but pandas series by their index.
    columns = [list(column) for column in columns]
    n_sentences = len(columns[0])
    given = None if documents is None else np.ravel(convert_to_label_array(documents))
    notes = None if comments is None else list(comments)
    named = {f"columns[{c}]": column for c, column in enumerate(columns)} | {"documents": given, "comments": notes}
    for name, values in named.items():
        if values is not None and len(values) != n_sentences:
            raise ValueError(f"{name} has {len(values)} sentences, but columns[0] has {n_sentences}.")
    if given is not None:
        _require_known("documents", given, "a sentence needs a document")
    # Use "O" in the last two columns, because the evaluation script would count "-X-" there as an entity.
    fillers = ["-X-"] * (len(columns) - 3) + ["O"] * 2
    mark = separator.join([_DOCUMENT, *fillers[: len(columns) - 1]])
    prefix = _find_comment_prefix(notes or [])
    lines: list[str] = []
    for i in range(n_sentences):
        if given is not None and (i == 0 or given[i] != given[i - 1]):
            lines += [mark, ""]
        lines += [*(notes[i] if notes else []), *_format_lines(columns, i, separator, prefix), ""]
    text = "".join(f"{line}\n" for line in lines)
    if text.startswith("\ufeff"):
        raise ValueError("the first character must not be U+FEFF, which readers of UTF-8 files leave out.")
    _text.write_text(path, text)


def _require_known(name: str, values: np.ndarray, needed: str) -> None:
    """Raise ValueError if a value is missing."""
    lacking = np.flatnonzero(mask_missing_nodes(values, np.nan))
    if len(lacking):
        raise ValueError(f"{name}[{lacking[0]}] is missing: {needed}.")


def _find_comment_prefix(comments: Sequence[Sequence[str]]) -> str | None:
    """Return the characters before the first letter or digit that all comments share, or None without comments."""
    for i, notes in enumerate(comments):
        for note in notes:
            if not note.strip() or set(note) & {"\n", "\r"}:
                raise ValueError(f"comments[{i}] has {note!r}: a comment must be one line that is not blank.")
    every = [note for notes in comments for note in notes]
    if not every:
        return None
    # Strings between two strings in alphabetical order share the beginning that these two share.
    first, last = min(every), max(every)
    shared = takewhile(lambda pair: pair[0] == pair[1] and not pair[0].isalnum(), zip(first, last, strict=False))
    prefix = "".join(character for character, _ in shared)
    if not prefix.strip():
        raise ValueError(f"comments must all begin with the same mark, such as '# ', got {first!r} and {last!r}.")
    return prefix


def _format_lines(columns: Sequence, i: int, separator: str, prefix: str | None) -> Iterator[str]:
    """Yield the lines of the tokens of one sentence."""
    # prefix: beginning of all comments, or None without comments
    sentence = [column[i] for column in columns]
    for c, entries in enumerate(sentence):
        if isinstance(entries, str) or not hasattr(entries, "__len__"):
            raise ValueError(
                f"columns[{c}][{i}] is {entries!r}: a sentence must be a list with an entry for each token."
            )
        if len(entries) != len(sentence[0]):
            raise ValueError(
                f"columns[{c}][{i}] has {len(entries)} tokens, but columns[0][{i}] has {len(sentence[0])} tokens."
            )
        # Strings are never missing, and the check of other values takes longer than the writing.
        if not all(type(entry) is str for entry in entries):
            _require_known(
                f"columns[{c}][{i}]", convert_to_label_array(entries), "a token needs an entry in each column"
            )
    if not len(sentence[0]):
        raise ValueError(f"columns[0][{i}] has no tokens, and the format cannot hold an empty sentence: leave it out.")
    splits = None if separator.isspace() and separator != "\t" else separator.encode()
    for t, token in enumerate(zip(*sentence, strict=True)):
        for c, entry in enumerate(map(str, token)):
            if entry.encode().split(splits) != [entry.encode()] or set(entry) & {"\n", "\r"}:
                raise ValueError(
                    f"columns[{c}][{i}][{t}] is {entry!r}: an entry must not be empty, nor contain the separator "
                    f"{separator!r} or a line break. Pass another separator, or replace these characters."
                )
        if str(token[0]).startswith(_DOCUMENT):
            raise ValueError(
                f"columns[0][{i}][{t}] is {token[0]!r}, which is reserved for document boundaries: pass the documents "
                "parameter instead."
            )
        line = separator.join(map(str, token))
        if not line.encode().strip() or (prefix is not None and line.startswith(prefix)):
            raise ValueError(
                f"token {t} of sentence {i} gives the line {line!r}, which would be read as a "
                f"{'comment' if line.strip() else 'blank line'}: replace its first entry."
            )
        yield line
