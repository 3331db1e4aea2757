"""Conversion of dictionaries of token features to sparse chains."""

import copy
import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.feature_extraction import DictVectorizer
from sklearn.pipeline import make_pipeline
from small_shards import neighbours, sentences

from sklearn_crf import TRWCRF, Shards
from sklearn_crf.preprocessing import SequenceVectorizer

SENTENCES = [
    [{"word": "the", "n": 1.5, "upper": False}, {"word": "cat", "upper": True}],
    [{"word": "the", "next": {"word": "end"}, "affix": ["t", "th"]}],
]


def test_columns_are_those_of_dict_vectorizer():
    flat = [token for sentence in SENTENCES[:1] for token in sentence]
    reference = DictVectorizer(sort=False).fit(flat)
    ours = SequenceVectorizer().fit(SENTENCES[:1])
    assert ours.vocabulary_ == reference.vocabulary_
    assert_array_equal(ours.transform(SENTENCES[:1])[0].toarray(), reference.transform(flat).toarray())


def test_nested_mappings_and_names():
    vectorizer = SequenceVectorizer()
    chains = vectorizer.fit_transform(SENTENCES)
    names = vectorizer.get_feature_names_out()
    row = dict(zip(names, chains[1].toarray()[0], strict=True))
    assert {name for name, value in row.items() if value} == {"word=the", "next:word=end", "affix:t", "affix:th"}
    assert chains.dtype == object
    assert [chain.shape for chain in chains] == [(2, 7), (1, 7)]


def test_iterables_of_names_and_generators():
    vectorizer = SequenceVectorizer(dtype=np.float32)
    chains = vectorizer.fit_transform([token, ["b"]] for token in (["a"], ("b", "a")))
    assert [chain.toarray().tolist() for chain in chains] == [[[1, 0], [0, 1]], [[1, 1], [0, 1]]]
    assert chains[0].dtype == np.float32


def test_unknown_names_are_left_out_and_rare_ones_on_request():
    vectorizer = SequenceVectorizer(min_count=2)
    chains = vectorizer.fit_transform([[["rare", "a"], ["b"]], [["b", "a"]]])
    assert vectorizer.vocabulary_ == {"a": 0, "b": 1}
    assert chains[0].toarray().tolist() == [[1, 0], [0, 1]]
    assert vectorizer.transform([[["new", "rare"], ["b"]]])[0].toarray().tolist() == [[0, 0], [0, 1]]


@pytest.mark.parametrize(
    ("X", "message"),
    [
        ([], "no sequence"),
        ("text", "got a str"),
        ([["word"]], r"X\[0\]\[0\]: features must be a mapping .* got 'word': pass {'word': 'word'} or \['word'\]"),
        ([[["a"]], "a word"], r"X\[1\] is the string 'a word': split it into tokens"),
        ([[["a"]], [["a", 3]]], r"X\[1\]\[0\]: a feature in an iterable must be a string, got 3"),
        ([[{"a": np.nan}]], r"X\[0\]\[0\]: the value of 'a' must be finite, not NaN"),
        ([[{"a": b"x"}]], r"X\[0\]\[0\]: the value of 'a' must be a string, a number, .* got b'x'"),
        ([[{"a": None}]], r"X\[0\]\[0\]: the value of 'a' must be a string, a number, .* got None"),
        ([[{"a": 1}, {"a": {"b": None}}]], r"X\[0\]\[1\]: the value of 'a:b' must"),
        ([[{"a": [1]}]], r"a feature in an iterable of 'a' must be a string, got 1"),
        ([[{"a": 1j}]], r"X\[0\]\[0\]"),
        ([[{"a": 10**400}]], r"X\[0\]\[0\]: the value of 'a' must be finite, not NaN or infinity, got inf"),
        ([[{"a": 1, "b": 10**5000}]], r"X\[0\]\[0\]: the value of 'b' must be finite"),
        ([[{"a": Fraction(10**400)}]], r"X\[0\]\[0\]: the value of 'a' must be finite"),
        ([[{"a": np.array(2.0)}]], r"X\[0\]\[0\]: the value of 'a' must be a string, a number, .* got array\(2"),
    ],
)
def test_what_is_refused(X, message):
    with pytest.raises(ValueError, match=message):
        SequenceVectorizer().fit(X)


def test_empty_sequences_are_chains_without_nodes():
    chains = SequenceVectorizer().fit_transform([[["a"]], [], [["b"], ["a"]]])
    assert [chain.shape for chain in chains] == [(1, 2), (0, 2), (2, 2)]
    examples = SequenceVectorizer(edge_features=lambda a, b: ["bias"]).fit_transform([[], [["b"], ["a"]]])
    assert [example.n_nodes for example in examples] == [0, 2]


def test_numbers_beyond_the_precision_are_refused():
    with pytest.raises(ValueError, match="must be finite"):
        SequenceVectorizer(dtype=np.float32).fit([[{"a": 1e39}]])


def test_zeros_are_not_stored_and_do_not_count():
    X = [[{"a": 0, "b": False, "c": 0.5}], [{"a": 2, "c": np.float32(1), "b": np.bool_(True)}]]
    vectorizer = SequenceVectorizer()
    assert [chain.nnz for chain in vectorizer.fit_transform(X)] == [1, 3]
    assert list(vectorizer.vocabulary_) == ["a", "b", "c"]
    assert list(SequenceVectorizer(min_count=2).fit(X).vocabulary_) == ["c"]


def test_one_name_is_one_column_however_it_is_written():
    X = [[{"a": "b=c"}, {"a=b": "c"}, ["a=b=c"], {"a": np.str_("b=c")}], [{"x": {"y": "z"}}, {"x": ["y=z"]}, ["x:y=z"]]]
    vectorizer = SequenceVectorizer()
    chains = vectorizer.fit_transform(X)
    assert list(vectorizer.vocabulary_) == ["a=b=c", "x:y=z"]
    assert_array_equal(chains[0].toarray(), [[1, 0]] * 4)
    assert_array_equal(chains[1].toarray(), [[0, 1]] * 3)


def test_names_that_are_no_strings_are_written_out():
    assert list(SequenceVectorizer().fit([[{1: "a"}, {True: "a"}, {(0, 1): "a"}]]).vocabulary_) == [
        "1=a",
        "True=a",
        "(0, 1)=a",
    ]


def test_many_tokens_grow_the_buffers():
    X = [[{"w": f"{t % 7}", "i": float(t)} for t in range(3000)], [["w=3"]]]
    vectorizer = SequenceVectorizer()
    long, short = vectorizer.fit_transform(X)
    assert long.nnz == 5999
    assert short.indices.tolist() == [vectorizer.vocabulary_["w=3"]]
    assert_array_equal(long[:, vectorizer.vocabulary_["i"]].toarray().ravel(), np.arange(3000))
    again = vectorizer.transform(X)[0]
    again.check_format(full_check=True)
    assert (again != long).nnz == 0


def reference_columns(X):
    """Return the columns of string values by a dictionary, in the order of their first occurrence."""
    vocabulary = {}
    rows = [
        [vocabulary.setdefault(f"{name}={value}", len(vocabulary)) for name, value in token.items()]
        for sequence in X
        for token in sequence
    ]
    return vocabulary, rows


class Word(str):
    """A subclass of str."""


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("at", [0, 1023, 1024, 2999, None])
def test_one_value_that_is_not_one(at, dtype):
    values = np.ones(3000, dtype=dtype)
    if at is not None:
        values[at] = 2.5
    vectorizer = SequenceVectorizer(dtype=dtype)
    chains = vectorizer.fit_transform([[{f"n{k}": value}] for k, value in enumerate(values.tolist())])
    assert {chain.dtype for chain in chains} == {np.dtype(dtype)}
    assert_array_equal(np.concatenate([chain.data for chain in chains]), values)
    assert_array_equal(np.concatenate([chain.indices for chain in chains]), np.arange(3000))
    # If all values are one, a single array of ones replaces them.
    assert chains[0].data.flags.writeable == (at is not None)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_strings_of_any_length_and_script_have_columns_of_their_own(data):
    # Strings of up to 15 one-byte characters are distinguished from longer strings and from strings in other scripts.
    letters = st.text(st.sampled_from("ab\0é\xffß字𝄞"), max_size=18)
    values = st.one_of(letters, letters.map(Word), st.sampled_from(["a" * 15, "a" * 16, "a" * 15 + "\0", "a\0", "a"]))
    tokens = st.dictionaries(st.sampled_from(["w", "v", "w2", "字"]), values, max_size=4)
    X = data.draw(st.lists(st.lists(tokens, min_size=1, max_size=8), min_size=1, max_size=6))
    # A fresh copy of every string, so no string is found by its address.
    Z = [[{name: value[:1] + value[1:] for name, value in token.items()} for token in sequence] for sequence in X]
    vocabulary, rows = reference_columns(X)
    vectorizer = SequenceVectorizer().fit(X)
    assert vectorizer.vocabulary_ == vocabulary
    for chains in (vectorizer.transform(Z), vectorizer.transform([tuple(sequence) for sequence in Z])):
        found = [row.indices.tolist() for chain in chains for row in chain]
        assert found == rows


def test_the_order_of_names_may_change_from_token_to_token():
    rng = np.random.default_rng(0)
    names = np.array(["a", "b", "c", "d"])
    X = [[{str(name): str(rng.integers(2000)) for name in rng.permutation(names)[:3]} for _ in range(900)]]
    vocabulary, rows = reference_columns(X)
    vectorizer = SequenceVectorizer()
    assert [row.indices.tolist() for row in vectorizer.fit_transform(X)[0]] == rows
    assert vectorizer.vocabulary_ == vocabulary


def test_a_failed_fit_leaves_the_vocabulary():
    vectorizer = SequenceVectorizer(edge_features=lambda a, b: a).fit([[["a"], ["b"]]])
    vectorizer.set_params(edge_features=lambda a, b: 3)
    with pytest.raises(ValueError, match="features must be a mapping"):
        vectorizer.fit([[["c"], ["d"]]])
    assert list(vectorizer.vocabulary_) == ["a", "b"]


def test_min_count_is_checked():
    with pytest.raises(ValueError, match="'min_count' parameter of SequenceVectorizer must be an int in the range"):
        SequenceVectorizer(min_count=0).fit(SENTENCES)


def test_a_tagger_is_a_pipeline_of_two_steps():
    tags = [np.array(["D", "N"]), np.array(["D"])]
    pipeline = make_pipeline(SequenceVectorizer(), TRWCRF(weights="seen", inference="map"))
    fitted = clone(pipeline).fit(SENTENCES, tags)
    copy = pickle.loads(pickle.dumps(fitted))
    for predicted, truth in zip(copy.predict(SENTENCES), tags, strict=True):
        assert_array_equal(predicted, truth)


@given(st.lists(st.lists(st.lists(st.sampled_from("abcdef"), max_size=8), min_size=1, max_size=4), min_size=1))
@settings(max_examples=50, deadline=None)
def test_repeated_names_of_a_token_count_once(sequences):
    for token in (list, tuple, lambda names: {"n": names}, lambda names: {"n": {"m": names}}):
        given = [[token(names) for names in sequence] for sequence in sequences]
        unique = [[token(list(dict.fromkeys(names))) for names in sequence] for sequence in sequences]
        for min_count in (1, 2):
            ours, expected = (SequenceVectorizer(min_count=min_count).fit(X) for X in (given, unique))
            assert ours.vocabulary_ == expected.vocabulary_
            for found, right in zip(ours.transform(given), expected.transform(unique), strict=True):
                assert_array_equal(found.indices, right.indices)
                assert_array_equal(found.toarray(), right.toarray())
                assert set(found.data) <= {1.0}


# -- Shards ---------------------------------------------------------------------------------------


def all_of(shards):
    """Return X and y of all shards."""
    loaded = shards.map(lambda shard, _: shard.load())
    return tuple([example for part in loaded for example in part[k]] for k in (0, 1))


OF_SHARDS = {"all": {}, "rare": {"min_count": 40}, "edges": {"edge_features": neighbours}}


@pytest.mark.parametrize("options", OF_SHARDS.values(), ids=OF_SHARDS)
def test_the_dictionary_of_shards_is_that_of_all_sequences(options):
    shards = Shards(range(5), sentences)
    X, _ = all_of(shards)
    whole = SequenceVectorizer(**options).fit(X)
    found = SequenceVectorizer(**options).fit(shards)
    # Columns are in the same order too.
    assert list(found.vocabulary_.items()) == list(whole.vocabulary_.items())
    assert found.n_columns_ == whole.n_columns_
    if "edge_features" in options:
        assert list(found.edge_vocabulary_.items()) == list(whole.edge_vocabulary_.items())
        return
    if "min_count" in options:
        assert 0 < found.n_columns_ < SequenceVectorizer().fit(shards).n_columns_
    for ours, expected in zip(all_of(found.transform(shards))[0], whole.transform(X), strict=True):
        assert_array_equal(ours.toarray(), expected.toarray())
    again = clone(found).fit_transform(shards)
    for ours, expected in zip(all_of(again)[0], whole.transform(X), strict=True):
        assert_array_equal(ours.toarray(), expected.toarray())


def test_pipelines_take_shards():
    shards = Shards.from_arrays(map(sentences, range(4)))
    tagger = make_pipeline(SequenceVectorizer(), TRWCRF(C=10, max_iter=30)).fit(shards)
    vectorizer = SequenceVectorizer().fit(all_of(shards)[0])
    chains = Shards.from_arrays([(vectorizer.transform(X), y) for X, y in map(sentences, range(4))])
    expected = TRWCRF(C=10, max_iter=30).fit(chains)
    assert_array_equal(tagger[-1].coef_, expected.coef_)
    assert tagger.score(shards) == expected.score(chains) > 0.8
    for found, part in zip(tagger.predict(shards), expected.predict(chains), strict=True):
        for labels, own in zip(found, part, strict=True):
            assert_array_equal(labels, own)
    # A pipeline fitted to shards also accepts data in memory, and can be pickled.
    X, y = sentences(9)
    assert pickle.loads(pickle.dumps(tagger)).score(X, y) == tagger.score(X, y)


def test_errors_name_the_shard():
    def load(seed):
        return ([[{"word": None}]], [[0]]) if seed == 2 else sentences(seed)

    with pytest.raises(ValueError, match=r"In shard 2: .*'word'.*"):
        SequenceVectorizer().fit(Shards(range(3), load))
    vectorizer = SequenceVectorizer().fit(Shards(range(2), load))
    with pytest.raises(RuntimeError, match=r"load failed for shard 2: ValueError: .*'word'"):
        TRWCRF().fit(vectorizer.transform(Shards(range(3), load)))
    with pytest.raises(ValueError, match="X contains no sequence"):
        SequenceVectorizer().fit(Shards.from_arrays([([], []), ([], [])]))
    with pytest.raises(ValueError, match=r"load must return the tuple .* got list for shard 0"):
        TRWCRF().fit(vectorizer.transform(Shards([0], lambda seed: [1, 2])))


def test_sets_are_read_in_an_order_that_no_process_changes():
    vectorizer = SequenceVectorizer().fit([[{"a": {"d", "a", "c", "b"}}, frozenset("zyx")]])
    assert vectorizer.get_feature_names_out().tolist() == ["a:a", "a:b", "a:c", "a:d", "x", "y", "z"]


def test_copies_do_not_depend_on_parameters_set_after_the_fit():
    fitted = SequenceVectorizer().fit([[["a"], ["b"]]])
    copied = copy.deepcopy(fitted.set_params(edge_features=neighbours)).set_params(edge_features=None)
    assert_array_equal(copied.transform([[["b"]]])[0].toarray(), [[0, 1]])
