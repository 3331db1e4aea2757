"""Exact inference on chains that score the durations of runs."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from finite_differences import five_point
from numpy.testing import assert_allclose, assert_array_equal
from segment_reference import enumerated, random_segments, score_of

from sklearn_crf.graphs import Graph, lattice
from sklearn_crf.inference import AutoMap, AutoMarginals, TreeInference, exact_inference
from sklearn_crf.inference.exact._segments import SegmentInference
from sklearn_crf.models import (
    PairwiseModel,
    SegmentModel,
    check_allowed_states,
    clamped,
    compute_labeling_statistics,
    compute_score_terms,
    replace_unary,
    score,
)

SHAPES = [((5,), 3, 2), ((4, 3), 2, 3), ((1, 2, 1), 3, 1), ((6,), 1, 3), ((1,), 1, 1), ((3, 1), 4, 9), ((7,), 2, 4)]
LAYOUTS = [
    {},
    {"min_duration": 2},
    {"n_edge_features": 2},
    {"n_edge_types": 2, "n_types": 2},
    {"n_edge_features": 3, "n_edge_types": 2},
    {"scores_runs": True},
    {"scores_runs": True, "min_duration": 2, "n_types": 2, "n_edge_features": 2},
]


def assert_statistics(found, expected, tol):
    for name, ours, theirs in zip(found._fields, found, expected, strict=True):
        # Statistics of nodes and of single runs have the precision of the model.
        of_nodes = name in ("unary", "ends", "spans", "means")
        assert_allclose(ours, theirs, atol=tol if of_nodes else 1e-9, err_msg=name)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [1, 1000])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_results_equal_enumeration(shape, scale, dtype, layout):
    if layout.get("min_duration", 1) > shape[2]:
        layout = {}
    model = random_segments(*shape, scale=scale, dtype=dtype, seed=3, **layout)
    _, scores, log_z, expected = enumerated(model)
    tol = 1e-9 if dtype == np.float64 else 1e-6
    found = SegmentInference().marginals(model)
    assert found.unary.dtype == dtype
    assert found.bound == "exact"
    assert found.log_z == pytest.approx(log_z, rel=1e-12, abs=1e-10)
    assert_statistics(found.statistics, expected, tol)
    of_chains = SegmentInference().log_partitions(model)
    assert of_chains.sum() == pytest.approx(log_z, rel=1e-12, abs=1e-10)
    parts = np.add.reduceat(found.log_z_terms, model.chain_ptr[:-1])
    assert_allclose(of_chains, parts, rtol=1e-12, atol=1e-9)
    best = SegmentInference().map(model)
    assert best.score == pytest.approx(scores.max(), rel=1e-12, abs=1e-10)
    assert best.certified
    assert score_of(model, best.labels) == pytest.approx(scores.max(), rel=1e-12, abs=1e-10)


@pytest.mark.parametrize("of_runs", [[], ["ends"], ["spans"], ["means"], ["ends", "spans", "means"]], ids="-".join)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [0.5, 5, 50, 1000])
@pytest.mark.parametrize("least", [1, 3])
def test_probabilities_equal_logarithms(least, scale, dtype, of_runs):
    for sizes in ((4, 1, 2), (300, 40, 1, 90)):
        model = random_segments(sizes, 3, 5, scale=scale, dtype=dtype, seed=4, min_duration=least, scores_runs=True)
        tables = model.tables.copy()
        tables[..., 0, 2] = -np.inf if least == 3 else 0
        unused = dict.fromkeys({"ends", "spans", "means"}.difference(of_runs))
        model = replace(model, pairwise=replace(model.pairwise, tables=tables), **unused)
        found = SegmentInference().marginals(model)
        if len(sizes) == 3:
            log_z, expected = enumerated(model)[2:]
        else:
            # Tables with weights of edges, here ones, are added in logarithms.
            weight = np.ones((model.graph.n_edges, 1), dtype)
            general = SegmentInference().marginals(replace(model, pairwise=replace(model.pairwise, edge_weight=weight)))
            log_z, expected = general.log_z, general.statistics
        assert found.log_z == pytest.approx(log_z, rel=1e-11)
        tol = (1e-8 if dtype == np.float64 else 1e-5) * len(model.chain_ptr)
        for ours, theirs in zip(found.statistics, expected, strict=True):
            assert_allclose(ours, theirs, atol=tol)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("scale", [1, 1000])
def test_forbidden_scores(scale, seed):
    least = 1 + seed % 3
    options = {"min_duration": least, "forbidden": 0.1 if seed % 2 else 0.25, "scores_runs": bool(seed % 2)}
    model = random_segments((5, 2), 3, 3, scale=scale, seed=seed, **options)
    _, scores, log_z, expected = enumerated(model)
    if np.isneginf(scores).all():
        with pytest.raises(ValueError, match="infeasible"):
            SegmentInference().marginals(model)
        with pytest.raises(ValueError, match="infeasible"):
            SegmentInference().map(model)
        with pytest.raises(ValueError, match="infeasible"):
            SegmentInference().sample(model, 3)
        return
    found = SegmentInference().marginals(model)
    assert found.log_z == pytest.approx(log_z, rel=1e-12, abs=1e-10)
    assert_statistics(found.statistics, expected, 1e-9)
    assert SegmentInference().map(model).score == pytest.approx(scores.max(), rel=1e-12)
    drawn = SegmentInference().sample(model, 50, random_state=seed)
    assert all(score(model, labels) > -np.inf for labels in drawn)


def test_infeasible_chain_is_named():
    model = random_segments((2, 3), 2, 2)
    unary = model.unary.copy()
    unary[2:, 0] = -np.inf
    model = replace(replace_unary(model, unary), durations=[[0.0, 0.0], [0.0, -np.inf]])
    with pytest.raises(ValueError, match="every labeling of nodes 2, 3, 4 is forbidden"):
        AutoMarginals().marginals(model)
    with pytest.raises(ValueError, match="every labeling of nodes 2, 3, 4 is forbidden"):
        AutoMap().map(model)
    with pytest.raises(ValueError, match="every labeling of nodes 2, 3, 4 is forbidden"):
        SegmentInference().log_partitions(model)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_marginals_are_derivatives(layout):
    model = random_segments((4, 2), 3, 3, seed=5, **layout)
    found = SegmentInference().marginals(model).statistics

    def log_z(**fields):
        of_runs = {name: fields.pop(name, getattr(model, name)) for name in ("durations", "ends", "spans", "means")}
        moved = replace(model, pairwise=replace(model.pairwise, **fields), **of_runs)
        return SegmentInference().marginals(moved).log_z

    for name, values in found._asdict().items():
        numeric = five_point(lambda x, name=name: log_z(**{name: x}), getattr(model, name))
        assert_allclose(values, numeric, atol=1e-8, err_msg=name)


def test_labelings_and_their_statistics():
    model = random_segments((5, 3), 3, 3, seed=2, n_types=2, n_edge_features=2, scores_runs=True)
    rng = np.random.default_rng(0)
    for labels in rng.integers(3, size=(20, 8)):
        assert score(model, labels) == pytest.approx(score_of(model, labels))
        counted = compute_labeling_statistics(model, labels)
        total = sum(float(np.sum(getattr(model, name) * getattr(counted, name))) for name in counted._fields)
        assert total == pytest.approx(score(model, labels))
        parts = compute_score_terms(model, labels)
        first = SegmentModel(
            PairwiseModel(
                lattice((5,)),
                model.unary[:5],
                model.tables,
                model.pairwise.edge_type[:4],
                model.pairwise.edge_weight[:4],
            ),
            model.durations,
            model.duration_type[:1],
            ends=model.ends[:, :5],
            spans=model.spans[:5],
            means=model.means[:5],
        )
        assert parts[:5].sum() == pytest.approx(score(first, labels[:5]))


@pytest.mark.parametrize("n_durations", [1, 4])
def test_without_duration_scores_it_is_a_plain_chain(n_durations):
    model = random_segments((30, 1, 17), 4, n_durations, scale=5, seed=1)
    model = replace(model, durations=np.zeros((4, n_durations)))
    found, plain = SegmentInference().marginals(model), TreeInference().marginals(model.pairwise)
    assert found.log_z == pytest.approx(plain.log_z, rel=1e-13)
    assert_allclose(found.unary, plain.unary, atol=1e-12)
    assert_allclose(found.tables, plain.tables, atol=1e-11)
    assert_allclose(found.log_z_terms[:30].sum(), plain.log_z_terms[:30].sum(), rtol=1e-13)
    assert_array_equal(SegmentInference().map(model).labels, TreeInference().map(model.pairwise).labels)


def expanded(model, least):
    """Return a plain chain whose states are pairs of a label and a number of nodes, up to the least duration."""
    n, K = model.unary.shape
    states = [(label, d) for label in range(K) for d in range(1, least + 1)]
    unary = np.stack([model.unary[:, label] for label, _ in states], axis=1)
    table = np.full((len(states),) * 2, -np.inf)
    for i, (a, d) in enumerate(states):
        for j, (b, e) in enumerate(states):
            goes_on, changes = a == b and e == min(d + 1, least), a != b and d == least and e == 1
            if goes_on or changes:
                table[i, j] = model.tables[0, 0, a, b]
    unary[0, [d > 1 for _, d in states]] = -np.inf
    unary[-1, [d < least for _, d in states]] = -np.inf
    return PairwiseModel(lattice((n,)), unary, [table])


@pytest.mark.parametrize("least", [1, 2, 5])
def test_least_durations_equal_expanded_states(least):
    model = random_segments((40,), 3, least, scale=4, seed=4)
    durations = np.zeros((3, least))
    durations[:, : least - 1] = -np.inf
    model = replace(model, durations=durations)
    found, wide = SegmentInference().marginals(model), TreeInference().marginals(expanded(model, least))
    assert found.log_z == pytest.approx(wide.log_z, rel=1e-12)
    assert_allclose(found.unary, wide.unary.reshape(40, 3, least).sum(axis=2), atol=1e-10)
    assert_array_equal(
        SegmentInference().map(model).labels, TreeInference().map(expanded(model, least)).labels // least
    )


def test_largest_duration_is_had_by_one_more_column():
    model = random_segments((30,), 2, 4, scale=3, seed=8)
    durations = model.durations.copy()
    durations[..., -1] = -np.inf
    model = replace(model, durations=durations)
    for labels in (SegmentInference().map(model).labels, *SegmentInference().sample(model, 20, random_state=0)):
        lengths = np.diff(np.flatnonzero(np.diff(labels, prepend=-1, append=-1)))
        assert lengths.max() <= 3


def test_samples_have_the_marginals():
    model = random_segments((4, 3), 3, 3, scale=0.7, seed=6, n_types=2, n_edge_features=2, scores_runs=True)
    found = SegmentInference().marginals(model)
    drawn = SegmentInference().sample(model, 40_000, random_state=0)
    assert_allclose((drawn[..., None] == np.arange(3)).mean(axis=0), found.unary, atol=0.012)
    counted = [compute_labeling_statistics(model, labels) for labels in drawn[:8000]]
    for name in ("durations", "ends", "spans", "means"):
        mean = sum(getattr(own, name) for own in counted) / 8000
        assert_allclose(mean, getattr(found.statistics, name), atol=0.03, err_msg=name)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_same_bits_for_any_number_of_threads(dtype):
    sizes = 900, 1, 3000, 40, 500, 700, 2000
    model = random_segments(sizes, 3, 6, seed=1, dtype=dtype, n_types=2, scores_runs=True)
    first, *others = (SegmentInference().marginals(model, n_threads=n) for n in (1, 2, 5))
    for other in others:
        assert other.log_z == first.log_z
        for ours, theirs in zip(first.statistics, other.statistics, strict=True):
            assert_array_equal(ours, theirs)
    labels = [SegmentInference().map(model, n_threads=n).labels for n in (1, 3)]
    assert_array_equal(*labels)
    assert_array_equal(*(SegmentInference().log_partitions(model, n_threads=n) for n in (1, 3)))
    assert_array_equal(*(SegmentInference().sample(model, 3, random_state=0, n_threads=n) for n in (1, 3)))
    alone = []
    for start, stop, kind in zip(*(model.graph.chain_ptr[k : k + 7] for k in (0, 1)), model.duration_type, strict=True):
        chain = PairwiseModel(lattice((stop - start,)), model.unary[start:stop], model.tables)
        own = {"ends": model.ends[:, start:stop], "spans": model.spans[start:stop], "means": model.means[start:stop]}
        alone.append(SegmentInference().marginals(SegmentModel(chain, model.durations[kind], **own)).log_z)
    assert first.log_z == pytest.approx(sum(alone), rel=1e-13)


@pytest.mark.parametrize("scale", [1, 1000])
def test_long_chain(scale):
    # Marginals stay normalised although their differences add up along the chain.
    model = random_segments((100_000,), 3, 12, scale=scale, seed=0)
    found = SegmentInference().marginals(model)
    assert_allclose(found.unary.sum(axis=1), 1, atol=1e-8)
    assert found.unary.min() >= 0
    lengths = np.arange(1, 13)
    assert found.statistics.durations.sum() > 0
    assert (found.statistics.durations * lengths).sum() <= 100_000 + 1e-3
    best = SegmentInference().map(model)
    assert best.score <= found.log_z * (1 + 1e-12) + 1e-6
    assert SegmentInference().log_partitions(model)[0] == pytest.approx(found.log_z, rel=1e-12)


LIMITED = """
import resource
import numpy as np
from sklearn_crf.graphs import lattice
from sklearn_crf.inference.exact._segments import SegmentInference
from sklearn_crf.models import PairwiseModel, SegmentModel

n = 3_000_000
plain = PairwiseModel(lattice((n,)), np.zeros((n, 3)), np.zeros((1, 3, 3)))
model = SegmentModel(plain, np.zeros((3, 4)))
log_z = SegmentInference().log_partitions(model)[0]
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + 30_000_000
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
assert SegmentInference().log_partitions(model)[0] == log_z
assert abs(log_z / (n * np.log(3)) - 1) < 1e-9
try:
    SegmentInference().marginals(model)
except MemoryError:
    print("done")
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is limited as on Linux")
def test_log_partitions_need_no_memory_for_nodes():
    # A number for each state of each node takes 72 MB. The limit leaves 30 MB.
    found = subprocess.run([sys.executable, "-c", LIMITED], capture_output=True, text=True, check=False)
    assert found.stdout == "done\n", found.stderr


def test_read_only_scores_and_known_labels():
    model = random_segments((6,), 3, 3, seed=9)
    for array in (model.unary, model.tables, model.durations):
        array.setflags(write=False)
    known = np.array([-1, 2, -1, -1, 0, -1])
    fixed = clamped(model, known)
    labelings, scores, *_ = enumerated(model)
    agree = ((labelings == known) | (known < 0)).all(axis=1)
    found = SegmentInference().marginals(fixed)
    assert found.log_z == pytest.approx(np.logaddexp.reduce(scores[agree]))
    assert_array_equal(found.unary[1, :2], 0)
    assert found.unary[1, 2] == pytest.approx(1, abs=1e-14)


@pytest.mark.parametrize("layout", [{}, *LAYOUTS[1:2], *LAYOUTS[-1:], {"forbidden": 0.2, "scores_runs": True}])
@pytest.mark.parametrize("shape", SHAPES[:2] + SHAPES[5:], ids=str)
def test_best_labelings_and_edges_equal_enumeration(shape, layout):
    if layout.get("min_duration", 1) > shape[2]:
        layout = {}
    model = random_segments(*shape, seed=7, **layout)
    labelings, scores, log_z, _ = enumerated(model)
    allowed = np.sort(scores[scores > -np.inf])[::-1]
    if not len(allowed):
        with pytest.raises(ValueError, match="infeasible"):
            SegmentInference().best(model, 3)
        return
    for m in (1, 7, 10_000):
        found = SegmentInference().best(model, m)
        assert_allclose(found.scores, allowed[:m], atol=1e-9)
        assert len(np.unique(found.labels, axis=0)) == len(found.labels)
        assert_allclose([score_of(model, labels) for labels in found.labels], found.scores, atol=1e-9)
    pairs = np.zeros((model.graph.n_edges, *model.tables.shape[2:]))
    for labels, p in zip(labelings, np.exp(scores - log_z), strict=True):
        tail, head = labels[model.graph.edges.T]
        pairs[np.arange(len(pairs)), tail, head] += p
    assert_allclose(SegmentInference().edge_marginals(model), pairs, atol=1e-9)


def test_automatic_choices_take_segments():
    model = random_segments((6, 4), 3, 3, seed=9)
    assert isinstance(exact_inference(model), SegmentInference)
    exact = SegmentInference().marginals(model)
    found = AutoMarginals().marginals(model)
    assert found.method == "SegmentInference"
    assert found.error == 0
    assert found.log_z == exact.log_z
    assert_array_equal(AutoMarginals().node_marginals(model), exact.unary)
    assert AutoMap().map(model).score == SegmentInference().map(model).score
    assert AutoMarginals().sample(model, 3, random_state=0).shape == (3, 10)
    with pytest.raises(TypeError, match=r"PairwiseModel for TreeInference, got SegmentModel.*SegmentInference"):
        TreeInference().marginals(model)


def test_no_nodes():
    empty = SegmentModel(
        PairwiseModel(Graph(0, np.zeros((0, 2), int)), np.zeros((0, 2)), np.zeros((1, 2, 2))), np.zeros((2, 3))
    )
    found = SegmentInference().marginals(empty)
    assert found.log_z == 0
    assert found.statistics.durations.shape == (1, 2, 3)
    assert SegmentInference().log_partitions(empty).shape == (0,)
    assert SegmentInference().map(empty).labels.shape == (0,)
    assert SegmentInference().sample(empty, 2).shape == (2, 0)


def test_wrong_models():
    chain, loop = lattice((3,)), Graph(3, [[0, 1], [1, 2], [0, 2]])
    pairwise = PairwiseModel(chain, np.zeros((3, 2)), np.zeros((1, 2, 2)))
    with pytest.raises(ValueError, match="segments need chains"):
        SegmentModel(PairwiseModel(loop, np.zeros((3, 2)), np.zeros((1, 2, 2))), np.zeros((2, 3)))
    for shape in [(3, 3), (2,), (2, 0), (0, 2, 3)]:
        with pytest.raises(ValueError, match=r"durations must have shape \(2, n_durations\)"):
            SegmentModel(pairwise, np.zeros(shape))
    with pytest.raises(ValueError, match="durations must be finite or -inf"):
        SegmentModel(pairwise, np.full((2, 3), np.nan))
    with pytest.raises(ValueError, match="duration_type"):
        SegmentModel(pairwise, np.zeros((2, 3)), [1])
    nothing = replace_unary(SegmentModel(pairwise, np.zeros((2, 3))), np.full((3, 2), -np.inf))
    with pytest.raises(ValueError, match="every state of node 0"):
        check_allowed_states(nothing)


def test_flash_semicrf_finds_the_same_log_partition_and_best_score():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    flash = pytest.importorskip("flash_semicrf", reason="flash-semicrf is not installed")
    rng = np.random.default_rng(0)
    n, n_classes, longest = 60, 3, 8
    unary, table, by_duration = (rng.normal(size=s) for s in ((n, n_classes), (n_classes,) * 2, (longest, n_classes)))
    # flash-semicrf begins with a transition, and joins equal labels of successive runs unless they are forbidden.
    before = np.where(np.eye(n_classes, dtype=bool), -1e9, table)
    sums = torch.tensor(np.concatenate([np.zeros((1, n_classes)), unary.cumsum(0)])[np.newaxis])
    durations = np.full((n_classes, longest + 1), -np.inf)  # the last column is for all longer runs
    durations[:, :longest] = by_duration.T
    np.fill_diagonal(table, 0.0)
    for semiring, reduce in (("log", np.logaddexp.reduce), ("max", np.max)):
        first = unary.copy()
        first[0] += reduce(before, axis=0)
        model = SegmentModel(PairwiseModel(lattice((n,)), first, table[np.newaxis]), durations)
        ours = AutoMarginals().marginals(model).log_z if semiring == "log" else AutoMap().map(model).score
        theirs = flash.semi_crf_streaming_forward(
            sums, torch.tensor(before), torch.tensor(by_duration), torch.tensor([n]), longest, semiring=semiring,
            use_triton=False,
        )  # fmt: skip
        assert_allclose(ours, theirs.item(), rtol=1e-10)
