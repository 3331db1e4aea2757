"""Names of inference algorithms."""

import pytest

from sklearn_crf.inference import NAMES, Inference, JunctionTree, resolve_inference


@pytest.mark.parametrize("name", NAMES)
def test_names_make_what_they_decode_with(name):
    found = resolve_inference(name)
    assert isinstance(found.inference, Inference)
    assert found.rule in ("mpm", "map")
    assert {"mpm": "marginals", "map": "map"}[found.rule] in found.inference.tasks
    assert resolve_inference(name).inference is not found.inference


@pytest.mark.parametrize(
    ("given", "nearest"),
    [("junction-tree", "junction_tree"), ("Gibs", "gibbs"), ("TRW-S", "trws"), ("alpha_expansions", "alpha_expansion")],
)
def test_errors_list_the_nearest_name_first(given, nearest):
    with pytest.raises(ValueError, match=f"one of '{nearest}', .*'lp'.*; got '{given}'"):
        resolve_inference(given)


def test_errors_of_unlike_names_keep_the_order_of_the_guide():
    with pytest.raises(ValueError, match="one of 'auto', 'mpm', 'map', 'tree'"):
        resolve_inference("xyzzy")


def test_the_name_of_an_exact_algorithm():
    assert isinstance(resolve_inference("junction_tree").inference, JunctionTree)
