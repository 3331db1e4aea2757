"""Names of inference algorithms."""

import pytest

from sklearn_crf.inference import NAMES, Inference, JunctionTree, by_name


@pytest.mark.parametrize("name", NAMES)
def test_names_make_what_they_decode_with(name):
    found = by_name(name)
    assert isinstance(found.inference, Inference)
    assert found.rule in ("mpm", "map")
    assert {"mpm": "marginals", "map": "map"}[found.rule] in found.inference.tasks
    assert by_name(name).inference is not found.inference


@pytest.mark.parametrize(
    ("given", "nearest"),
    [("junction-tree", "junction_tree"), ("Gibs", "gibbs"), ("TRW-S", "trws"), ("alpha_expansions", "alpha_expansion")],
)
def test_errors_list_the_nearest_name_first(given, nearest):
    with pytest.raises(ValueError, match=f"one of '{nearest}', .*'lp'.*; got '{given}'"):
        by_name(given)


def test_errors_of_unlike_names_keep_the_order_of_the_guide():
    with pytest.raises(ValueError, match="one of 'auto', 'mpm', 'map', 'tree'"):
        by_name("xyzzy")


def test_the_name_of_an_exact_algorithm():
    assert isinstance(by_name("junction_tree").inference, JunctionTree)
