"""Lists of data frames: columns are matched by name, in fit and in prediction."""

import numpy as np
import pytest

from sklearn_crf import TRWCRF
from sklearn_crf.encoding import encode_X, make_object_array
from sklearn_crf.preprocessing import NodeTransformer, group_rows, ungroup_rows

pd = pytest.importorskip("pandas", reason="data frames are pandas'")

RNG = np.random.default_rng(0)
LABELS = [RNG.integers(2, size=n) for n in (5, 3, 6, 4)]
FRAMES = [pd.DataFrame({"a": y + 0.1 * RNG.normal(size=len(y)), "b": RNG.normal(size=len(y))}) for y in LABELS]


def test_columns_are_aligned_to_those_of_fit():
    field = TRWCRF(max_iter=50).fit(FRAMES, LABELS)
    assert field.feature_names_in_.tolist() == ["a", "b"]
    expected = field.predict(FRAMES)
    turned = [frame[["b", "a"]] for frame in FRAMES]
    for same in (turned, tuple(turned), make_object_array(turned), [FRAMES[0], *turned[1:]]):
        assert all(np.array_equal(a, b) for a, b in zip(field.predict(same), expected, strict=True))
    assert field.score(turned, LABELS) == field.score(FRAMES, LABELS)


def test_columns_inside_one_list_are_aligned_to_the_first_frame():
    mixed = [FRAMES[0], *(frame[["b", "a"]] for frame in FRAMES[1:])]
    encoded = encode_X(mixed)
    assert encoded.feature_names.tolist() == ["a", "b"]
    for example, frame in zip(encoded.items, FRAMES, strict=True):
        assert np.array_equal(example.node_features, frame.to_numpy())


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (FRAMES[1].rename(columns={"b": "c"}), r"X\[1\] must have the columns \['a', 'b'\], but it lacks \['b'\]"),
        (FRAMES[1][["a"]], r"it lacks \['b'\]"),
        (FRAMES[1].assign(c=1.0), r"has \['c'\]"),
        (FRAMES[1][["a", "a"]], r"X\[1\] has a column twice: \['a'\]"),
        (FRAMES[1].assign(b="word"), r"column 'b' of X\[1\] must hold numbers, got strings"),
        (FRAMES[1].to_numpy(), r"X\[1\] is a ndarray, but X\[0\] is a DataFrame"),
    ],
)
def test_other_columns(second, message):
    with pytest.raises(ValueError, match=message):
        encode_X([FRAMES[0], second])


def test_frames_and_arrays_in_turn_warn():
    arrays = [frame.to_numpy() for frame in FRAMES]
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        TRWCRF(max_iter=5).fit(FRAMES, LABELS).predict(arrays)
    with pytest.warns(UserWarning, match="was fitted without feature names"):
        TRWCRF(max_iter=5).fit(arrays, LABELS).predict(FRAMES)


def test_columns_named_by_numbers_are_taken_in_order():
    frames = [pd.DataFrame(frame.to_numpy()) for frame in FRAMES]
    encoded = encode_X(frames)
    assert encoded.feature_names is None
    assert encoded.items[0].node_features.shape == (5, 2)


def test_node_transformer_aligns_columns():
    from sklearn.preprocessing import StandardScaler

    scaler = NodeTransformer(StandardScaler()).fit(FRAMES)
    assert scaler.feature_names_in_.tolist() == ["a", "b"]
    expected = scaler.transform(FRAMES)
    for x, z in zip(scaler.transform([frame[["b", "a"]] for frame in FRAMES]), expected, strict=True):
        assert np.array_equal(x, z)


def long_table():
    table = pd.concat([frame.assign(sentence=f"s{i}") for i, frame in enumerate(FRAMES)], ignore_index=True)
    return table.assign(label=np.concatenate(LABELS)).sample(frac=1, random_state=0)


def test_long_table_there_and_back():
    table = long_table()
    X = group_rows(table[["a", "b", "sentence"]], "sentence")
    y = group_rows(table["label"], table["sentence"])
    assert [list(x.columns) for x in X] == [["a", "b"]] * 4
    assert [len(x) for x in X] == [len(labels) for labels in y]
    field = TRWCRF(max_iter=50).fit(X, y)
    table["predicted"] = ungroup_rows(field.predict(X), table["sentence"])
    assert (table["predicted"] == table["label"]).mean() == pytest.approx(field.score(X, y))
    proba = ungroup_rows(field.predict_proba(X), table["sentence"])
    assert proba.shape == (len(table), 2)
    assert np.array_equal(ungroup_rows(y, table["sentence"]), table["label"])
