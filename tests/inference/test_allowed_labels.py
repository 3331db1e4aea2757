import pickle
import warnings
from itertools import combinations, pairwise

import numpy as np
import pytest
from factor_strategies import factor_graphs, random_factor_graph
from hypothesis import given, settings
from planted_models import (
    IMPOSSIBLE,
    PLANTED,
    constraint_network,
    has_allowed_labeling,
    impossible_models,
    is_satisfiable,
    random_edges,
    two_satisfiability,
)
from sklearn.exceptions import ConvergenceWarning

from sklearn_crf import TRWCRF, Example
from sklearn_crf.graphs import Graph
from sklearn_crf.inference import (
    AD3,
    ICM,
    MPLP,
    TRWS,
    AutoMap,
    BruteForce,
    CycleRelaxation,
    DualDecomposition,
    GraphCut,
    IncMP,
    LargeNeighborhoodSearch,
    LinearProgram,
    LoopyBP,
    MeanField,
    NormProductBP,
    convergence_left_to_caller,
)
from sklearn_crf.inference import _allowed_labels as module
from sklearn_crf.inference._allowed_labels import build_constraints, find_nearest_allowed
from sklearn_crf.inference._results import Refuted
from sklearn_crf.models import (
    CountTable,
    FactorGraph,
    PairwiseModel,
    SparseTable,
    check_allowed_states,
    exactly_one,
    factor_graph_of,
    score,
)
from sklearn_crf.potentials import PairwiseTables


def random_constraints(seed, n_nodes=7, n_factors=9, share=0.4):
    """Return factors of three nodes with random forbidden joint states; there may be no labeling at all."""
    rng = np.random.default_rng(seed)
    n_states = rng.integers(2, 4, size=n_nodes)
    factors = [((s,), rng.normal(size=n_states[s])) for s in range(n_nodes)]
    for number in range(n_factors):
        scope = rng.permutation(n_nodes)[:3]
        shape = tuple(n_states[scope].tolist())
        table = np.where(rng.random(shape) < share, -np.inf, rng.normal(size=shape))
        if number % 3 == 0 and np.isfinite(table).any():
            states = np.argwhere(np.isfinite(table))
            table = SparseTable(states, table[np.isfinite(table)], -np.inf)
        factors.append((scope, table))
    factors.append((rng.permutation(n_nodes)[:4], exactly_one()))
    return FactorGraph.from_factors(n_states, factors)


def is_feasible(model):
    try:
        return np.isfinite(BruteForce().map(model).score)
    except ValueError:
        return False


def test_found_if_there_are_any_and_refuted_if_not():
    n_feasible = 0
    for seed in range(60):
        model = random_constraints(seed)
        guide = np.zeros(model.n_nodes, dtype=np.int32)
        if is_feasible(model):
            n_feasible += 1
            assert np.isfinite(score(model, find_nearest_allowed(model, guide)))
        else:
            with pytest.raises(ValueError, match="model is infeasible"):
                find_nearest_allowed(model, guide)
    assert 10 < n_feasible < 50


@given(model=factor_graphs())
@settings(max_examples=40, deadline=None)
def test_allowed_labels_are_kept_or_bettered(model):
    rng = np.random.default_rng(0)
    guide = (rng.random(model.n_nodes) * model.n_states).astype(np.int32)
    found = find_nearest_allowed(model, guide)
    assert found.dtype == np.int32
    assert np.isfinite(score(model, found))
    assert score(model, found) >= score(model, guide)


def test_counts_against_enumeration():
    n_feasible = 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        n_states = rng.integers(2, 4, size=6)
        factors = [((s,), np.where(rng.random(n) < 0.2, -np.inf, 0.0)) for s, n in enumerate(n_states.tolist())]
        for _ in range(int(rng.integers(2, 6))):
            scope = rng.permutation(6)[: rng.integers(3, 7)]
            values = np.where(rng.random(rng.integers(1, 6)) < 0.6, -np.inf, 0.0)
            # Some nodes lack the counted state.
            factors.append((scope, CountTable(values, default=rng.choice([-np.inf, 0.0]), state=int(rng.integers(3)))))
        model = FactorGraph.from_factors(n_states, factors)
        try:
            check_allowed_states(model)
        except ValueError:
            continue
        expected = has_allowed_labeling(model)
        n_feasible += expected
        try:
            found = find_nearest_allowed(model, None)
        except Refuted as error:
            found, core = None, among(model, error.nodes)
        if found is None:
            assert not expected
            assert not has_allowed_labeling(core)
        else:
            assert np.isfinite(score(model, found)) == expected
    assert 50 < n_feasible < 250


def among(model, nodes):
    """Return the model restricted to factors among the given nodes; all other nodes get one state."""
    n_states = np.where(np.isin(np.arange(model.n_nodes), nodes), model.n_states, 1)
    kept = [f for f in range(model.n_factors) if np.isin(scope_of(model, f), nodes).all()]
    lengths = model.arity[kept]
    return FactorGraph(
        n_states,
        np.concatenate([np.zeros(0, int), *(scope_of(model, f) for f in kept)]),
        np.concatenate(([0], np.cumsum(lengths))).astype(int),
        model.table_id[kept],
        model.log_table,
        model.table_ptr,
        model.table_kind,
        model.table_cell,
        model.table_default,
        model.table_state,
    )


def scope_of(model, f):
    return model.scope[model.scope_ptr[f] : model.scope_ptr[f + 1]]


@pytest.mark.parametrize("kind", IMPOSSIBLE)
@pytest.mark.parametrize("algorithm", [AutoMap(), LargeNeighborhoodSearch(1e4, random_state=0)], ids=str)
def test_what_is_refuted_has_no_labels(kind, algorithm):
    for model in impossible_models(kind, 4):
        with pytest.raises(ValueError, match="model is infeasible: every labeling of nodes") as caught:
            algorithm.map(model)
        nodes = caught.value.nodes
        if np.prod([model.n_columns if isinstance(model, PairwiseModel) else 2] * len(nodes), dtype=float) < 1e5:
            graph = factor_graph_of(model) if isinstance(model, PairwiseModel) else model
            assert not has_allowed_labeling(among(graph, nodes))


def test_a_clique_of_one_node_too_many_is_named():
    for n_states in (2, 3, 4, 6):
        rng = np.random.default_rng(n_states)
        clique = sorted(rng.choice(30, n_states + 1, replace=False).tolist())
        others = [s for s in range(30) if s not in clique]
        edges = {*combinations(clique, 2), *pairwise(others), (min(clique[0], others[0]), max(clique[0], others[0]))}
        model = PairwiseModel(Graph(30, sorted(edges)), rng.normal(size=(30, n_states)), differing(n_states))
        with pytest.raises(ValueError, match="model is infeasible") as caught:
            AutoMap().map(model)
        assert caught.value.nodes == clique
        assert f"nodes {', '.join(map(str, clique))} is forbidden" in str(caught.value)
        again = pickle.loads(pickle.dumps(caught.value))
        assert (str(again), again.nodes, again.proven) == (str(caught.value), clique, True)


def differing(n_states):
    return np.where(np.eye(n_states), -np.inf, 0.0)[None]


@pytest.mark.parametrize("kind", PLANTED)
def test_planted_labelings_are_found(kind):
    for seed in (1, 2, 4):
        model = PLANTED[kind](seed)
        assert np.isfinite(score(model, find_nearest_allowed(model, None)))


@pytest.mark.parametrize(
    "algorithm",
    [
        *(GraphCut("qpbo"), AutoMap(), AutoMap(bounded=True), LargeNeighborhoodSearch(1e5, random_state=0), LoopyBP()),
        *(TRWS(max_iter=5), AD3(max_iter=5), DualDecomposition(max_iter=5), IncMP(max_iter=5), CycleRelaxation()),
        *(LinearProgram(), MeanField(), ICM()),
    ],
    ids=str,
)
def test_every_algorithm_finds_labels_of_two_states(algorithm):
    for seed in range(4):
        model = two_satisfiability(seed, n_nodes=40, ratio=1.6)
        with convergence_left_to_caller():
            found = algorithm.map(model)
        assert found.score == pytest.approx(score(model, found.labels))
        assert np.isfinite(found.score)
        assert found.bound >= found.score - 1e-9
    with pytest.raises(ValueError, match="model is infeasible"):
        algorithm.map(next(impossible_models("contradictory clauses", 1)))


def test_two_states_are_decided_without_a_search(monkeypatch):
    # The search makes no step: the strongly connected implications suffice.
    monkeypatch.setattr("sklearn_crf.inference._tuning.MOST_STEPS", 0)
    n_satisfiable = 0
    for seed in range(60):
        model = two_satisfiability(seed, n_nodes=200, ratio=0.9 + 0.01 * seed, satisfiable=False)
        expected = is_satisfiable(model)
        n_satisfiable += expected
        if expected:
            assert np.isfinite(score(model, find_nearest_allowed(model, None)))
        else:
            with pytest.raises(Refuted):
                find_nearest_allowed(model, None)
    assert 10 < n_satisfiable < 50


@pytest.mark.parametrize("algorithm", [MPLP(max_iter=2), NormProductBP(max_iter=2), LoopyBP(max_iter=2)], ids=str)
def test_dead_ends_of_factor_graphs_are_left(algorithm):
    n_dead = 0
    for seed in range(60):
        model = random_constraints(seed)
        if not is_feasible(model):
            continue
        with convergence_left_to_caller():
            n_dead += np.isneginf(algorithm._map(model).score)
            found = algorithm.map(model)
        best = BruteForce().map(model).score
        assert -np.inf < found.score <= best + 1e-9
        assert found.score == pytest.approx(score(model, found.labels))
        assert found.bound >= best - 1e-9 * (1 + abs(best))
    assert n_dead > 0


def test_pairs_of_states():
    # Neighbours on a cycle of five nodes must differ: three states are enough, two are not.
    graph = Graph(5, [[s, (s + 1) % 5] for s in range(5)])
    for seed in range(10):
        unary = np.random.default_rng(seed).normal(size=(5, 3))
        three = PairwiseModel(graph, unary, np.where(np.eye(3), -np.inf, 0.0)[None])
        with convergence_left_to_caller():
            assert np.isfinite(TRWS(max_iter=1).map(three).score)
    two = PairwiseModel(graph, unary[:, :2], np.where(np.eye(2), -np.inf, 0.0)[None])
    with pytest.raises(ValueError, match="model is infeasible"):
        find_nearest_allowed(two, None)


def test_giving_up_is_one_warning_and_no_claim(monkeypatch):
    monkeypatch.setattr("sklearn_crf.inference._tuning.MOST_STEPS", 0)
    model = constraint_network(0, n_nodes=60, n_states=6, share=1.05)
    with convergence_left_to_caller():
        worst = ICM().map(model)
    assert np.isneginf(worst.score)
    for algorithm in (TRWS(max_iter=5), AutoMap(), AutoMap(bounded=True), ICM(), LoopyBP()):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = algorithm.map(model)
        said = [w for w in caught if "this does not prove that none exists" in str(w.message)]
        assert len(said) == np.isneginf(found.score)
        assert not [w for w in caught if issubclass(w.category, RuntimeWarning)]
        assert found.score == score(model, found.labels)
        if np.isneginf(found.score):
            assert said[0].category is ConvergenceWarning
            assert not found.certified
            assert found.bound > -np.inf


def test_few_constraints_are_broken_where_a_search_gives_up(monkeypatch):
    monkeypatch.setattr("sklearn_crf.inference._tuning.MOST_STEPS", 0)
    for kind in ("colouring", "3-SAT"):
        model = PLANTED[kind](3)
        n_nodes = model.n_nodes if isinstance(model, FactorGraph) else model.graph.n_nodes
        rng = np.random.default_rng(0)
        labels = np.array(
            [rng.integers(n) for n in np.broadcast_to(2 if kind == "3-SAT" else 5, n_nodes)], dtype=np.int32
        )
        found = find_nearest_allowed(model, labels)
        assert module._count_violations(model, found) < module._count_violations(model, labels) / 5


def test_many_nodes():
    model = random_factor_graph(300, 500, 3, 3, forbidden=0.5, seed=3)
    assert np.isfinite(score(model, find_nearest_allowed(model, None)))


def test_decisions_by_scores_end_higher():
    gains = []
    for seed in range(10):
        constraints = build_constraints(model := random_factor_graph(60, 90, 3, 3, forbidden=0.6, seed=seed))
        guide = np.zeros(60, dtype=np.int32)
        for by_scores in (False, True):
            labels, found, _ = module._search(constraints, guide, 1e7, by_scores)
            assert found
            gains.append((1 if by_scores else -1) * score(model, labels))
    assert np.sum(gains) / 10 > 20


def test_predict_never_raises_where_a_search_gives_up(monkeypatch):
    rng, X, y = np.random.default_rng(0), [], []
    for _ in range(4):
        labels = rng.integers(4, size=40)
        edges = random_edges(rng, 40, 150, lambda a, b, labels=labels: labels[a] != labels[b])
        X.append(Example(np.eye(4)[labels] + 1.5 * rng.normal(size=(40, 4)), edges))
        y.append(labels)
    same = PairwiseTables("full", forbidden=[(a, a) for a in range(4)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        field = TRWCRF(pairwise=same, inference="icm", max_iter=3).fit(X, y)
        for model, labels in zip(field.models(X), field.predict(X), strict=True):
            assert np.isfinite(score(model, labels))
    monkeypatch.setattr("sklearn_crf.inference._tuning.MOST_STEPS", 0)
    with pytest.warns(ConvergenceWarning, match="ICM found no labeling with a finite score, but this does not prove"):
        given_up = field.predict(X)
    assert [len(labels) for labels in given_up] == [40] * 4
