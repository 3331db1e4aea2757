"""Sentences in columns: files that are written can be read back, and bad files raise clear errors."""

import gzip

import numpy as np
import pytest

from sklearn_crf.datasets import read_conll, write_conll

CONLL_2003 = """-DOCSTART- -X- O O

EU NNP I-NP I-ORG
rejects VBZ I-VP O

Peter NNP I-NP I-PER
# # O O

-DOCSTART- -X- O O

LONDON NNP I-NP I-LOC
"""


def test_documents_and_blank_lines(tmp_path):
    (tmp_path / "a.txt").write_text(CONLL_2003)
    found = read_conll(tmp_path / "a.txt")
    assert found.columns[0] == [["EU", "rejects"], ["Peter", "#"], ["LONDON"]]
    assert found.columns[3] == [["I-ORG", "O"], ["I-PER", "O"], ["I-LOC"]]
    assert found.documents.tolist() == [0, 0, 1]
    assert found.comments == [[], [], []]


def test_comments_and_tabs_of_conll_u(tmp_path):
    text = "# sent_id = 1\n# text = New York\n1\tNew York\tPROPN\n\n\n# sent_id = 2\n1\t#\tSYM\n"
    (tmp_path / "a.conllu").write_text(text)
    found = read_conll(tmp_path / "a.conllu", separator="\t", comment="# ")
    assert found.columns[1:] == ([["New York"], ["#"]], [["PROPN"], ["SYM"]])
    assert found.comments == [["# sent_id = 1", "# text = New York"], ["# sent_id = 2"]]


@pytest.mark.parametrize(
    ("text", "comment"),
    [
        ("# newdoc id = a\n# sent_id = 1\nA O\n\nB O\n\n# newdoc id = b\nC O\n", "# "),
        ("#begin document (x); part 000\nA O\n\nB O\n\n#end document\n#begin document (y); part 000\nC O\n", "#"),
    ],
)
def test_documents_of_conll_u_and_conll_2012(tmp_path, text, comment):
    (tmp_path / "a.txt").write_text(text)
    found = read_conll(tmp_path / "a.txt", comment=comment)
    assert found.columns[0] == [["A"], ["B"], ["C"]]
    assert found.documents.tolist() == [0, 0, 1]
    write_conll(tmp_path / "b.txt", found.columns, documents=found.documents, comments=found.comments)
    again = read_conll(tmp_path / "b.txt", comment=comment)
    assert (again.columns, again.comments) == (found.columns, found.comments)
    assert again.documents.tolist() == [0, 0, 1]


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf"])
def test_ends_of_lines_and_the_mark_of_utf_8(tmp_path, ending, start):
    # Unicode white space, and line ends as in str.splitlines, are parts of tokens.
    tokens = ["a\u00a0b", "c\u2028d", "\u00e9", "e\x85"]
    text = ending.join(f"{token}  X" for token in tokens)
    with gzip.open(tmp_path / "a.gz", "wb") as file:
        file.write(start + text.encode())
    assert read_conll(tmp_path / "a.gz").columns == ([tokens], [["X"] * 4])


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "a.xz"])
@pytest.mark.parametrize("separator", [" ", "\t", "|"])
def test_what_is_written_is_read_back(tmp_path, name, separator):
    rng, alphabet = np.random.default_rng(0), list("abc#-\u00e9\u4e2d\u00a0")
    lengths = rng.integers(1, 6, size=20)
    columns = tuple(
        [["".join(rng.choice(alphabet, size=rng.integers(1, 4))) for _ in range(n)] for n in lengths] for _ in range(3)
    )
    documents = np.sort(rng.integers(4, size=20))
    documents = np.unique(documents, return_inverse=True)[1]
    comments = [[f"%% {i} {k}" for k in range(rng.integers(3))] for i in range(20)]
    write_conll(tmp_path / name, columns, separator=separator, documents=documents, comments=comments)
    found = read_conll(tmp_path / name, separator=None if separator == " " else separator, comment="%%")
    assert found.columns == columns
    assert found.documents.tolist() == documents.tolist()
    assert found.comments == comments


def test_layout_that_is_written(tmp_path):
    # predict returns labels in this form: arrays of each sentence in an array of objects.
    predicted = np.empty(2, dtype=object)
    predicted[:] = [np.array(["O"]), np.array(["B-A", "O"])]
    write_conll(tmp_path / "a.txt", [[["x"], ["y", "z"]], [["O"], ["B-A", "O"]], predicted], documents=["one", "two"])
    expected = "-DOCSTART- O O\n\nx O O\n\n-DOCSTART- O O\n\ny B-A B-A\nz O O\n\n"
    assert (tmp_path / "a.txt").read_bytes() == expected.encode()


@pytest.mark.parametrize("n_columns", [1, 2, 3, 4, 5])
def test_marks_of_documents_have_no_entity(tmp_path, n_columns):
    write_conll(tmp_path / "a.txt", [[["x"]]] * n_columns, documents=[0])
    mark = (tmp_path / "a.txt").read_text().splitlines()[0].split(" ")
    # The evaluation script reads the labels of every line, also of marks, from the last two columns.
    assert len(mark) == n_columns
    assert set(mark[1:][-2:]) <= {"O"}
    assert set(mark[1:-2]) <= {"-X-"}


def test_empty_files(tmp_path):
    (tmp_path / "a.txt").write_text("\n\n-DOCSTART-\n\n")
    assert read_conll(tmp_path / "a.txt").columns == ()
    write_conll(tmp_path / "b.txt", [[]])
    assert read_conll(tmp_path / "b.txt").documents.shape == (0,)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"a O\nb\n", "a.txt, line 2 has 1 columns, but line 1 has 2"),
        (b"a O\n\n\xff O\n", "a.txt, line 3 is not in UTF-8"),
        (b"a O\n" * 100, "more than max_bytes=100 bytes"),
    ],
)
def test_bad_files(tmp_path, text, message):
    (tmp_path / "a.txt").write_bytes(text)
    with pytest.raises(ValueError, match=message):
        read_conll(tmp_path / "a.txt", max_bytes=100)


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ([[["a b"]]], {}, r"columns\[0\]\[0\]\[0\] is 'a b'"),
        ([[["a\tb"]]], {}, "must not be empty, nor contain the separator"),
        ([[["a"]], [[""]]], {}, r"columns\[1\]\[0\]\[0\] is ''"),
        ([[["a\nb"]]], {"separator": "|"}, "line break"),
        ([[["a"]], [["O"], ["O"]]], {}, r"columns\[1\] has 2 sentences, but columns\[0\] has 1"),
        ([[["a"]], [["O", "O"]]], {}, r"columns\[1\]\[0\] has 2 tokens, but columns\[0\]\[0\] has 1"),
        ([["a"]], {}, r"columns\[0\]\[0\] is 'a': a sentence must be a list"),
        ([[["a"], np.nan]], {}, r"columns\[0\]\[1\] is nan: a sentence must be a list"),
        ([[["a", None]]], {}, r"columns\[0\]\[0\]\[1\] is missing: a token needs an entry"),
        ([[np.ma.masked_array(["a", "b"], mask=[1, 0])]], {}, r"columns\[0\]\[0\]\[0\] is missing"),
        (
            [[["a"], ["b"]]],
            {"documents": np.ma.masked_array([1, 2], mask=[0, 1])},
            r"documents\[1\] is missing: a sentence needs a document",
        ),
        ([[["a"], ["b"]]], {"documents": [1.0, np.nan]}, r"documents\[1\] is missing"),
        ([[["a"], []]], {}, r"columns\[0\]\[1\] has no tokens"),
        ([[["-DOCSTART-"]]], {}, "pass the documents parameter instead"),
        ([], {}, "columns must be a list of columns"),
        ([[["a"]]], {"documents": [0, 1]}, "documents has 2 sentences"),
        ([[["a"]]], {"comments": [["# a\n"]]}, "must be one line"),
        ([[["a"]]], {"comments": [["nope"]]}, "comments must all begin with the same mark"),
        ([[["a"], ["b"]]], {"comments": [["# a"], ["% b"]]}, "comments must all begin with the same mark"),
        ([[["#", "a"]], [["O", "O"]]], {"comments": [["# a"]]}, "'# O', which would be read as a comment"),
        ([[[" "]], [[" "]]], {"separator": "\t"}, "which would be read as a blank line"),
        ([[["\ufeffa"]]], {}, "first character must not be U.FEFF"),
        ([[["a"]]], {"separator": ""}, "separator must be a non-empty string"),
    ],
)
def test_what_cannot_be_written_is_named(tmp_path, columns, options, message):
    with pytest.raises(ValueError, match=message):
        write_conll(tmp_path / "a.txt", columns, **options)
    assert not (tmp_path / "a.txt").exists()


def test_series_are_read_by_position(tmp_path):
    pd = pytest.importorskip("pandas")
    words, tags, comments = [["Ann", "ran"], ["He", "sat"]], [["B-PER", "O"], ["O", "O"]], [["# a"], ["# b"]]
    write_conll(tmp_path / "a.txt", [words, tags], documents=["x", "y"], comments=comments)
    for index in ([1, 0], [5, 6]):
        values = [pd.Series(values, index=index) for values in (words, ["x", "y"], comments)]
        columns = [values[0], [pd.Series(labels, index=[1, 0]) for labels in tags]]
        write_conll(tmp_path / "b.txt", columns, documents=values[1], comments=values[2])
        assert (tmp_path / "b.txt").read_text() == (tmp_path / "a.txt").read_text()


@pytest.mark.parametrize("options", [{"separator": ""}, {"separator": 3}, {"comment": ""}])
def test_bad_options(tmp_path, options):
    (tmp_path / "a.txt").write_text("a\n")
    with pytest.raises(ValueError, match=f"{next(iter(options))} must be a non-empty string"):
        read_conll(tmp_path / "a.txt", **options)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_any_line_ends(end, tmp_path):
    (tmp_path / "a.txt").write_bytes(end.join(["a X", "b Y", "", "c Z", ""]).encode())
    found = read_conll(tmp_path / "a.txt")
    assert [list(column) for column in found.columns] == [[["a", "b"], ["c"]], [["X", "Y"], ["Z"]]]
