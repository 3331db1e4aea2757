"""Tables of estimators at several C, with the accuracy, duality gap and iterations of labelings by MPLP."""

import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from sklearn_crf.inference import MPLP
from support.record import read_record, write_record


def certified_accuracy(model, X, y, max_iter=200):
    """Return the accuracy of labels by MPLP, mean relative duality gap, mean score per node and mean iterations.

    Parameters
    ----------
    model : TRWCRF
        Fitted model with the classes 0, 1, and so on.
    X : list of Example
    y : list of ndarray
        True labels. Predictions for nodes labelled -1 count as errors.
    max_iter : int
    """
    mplp = MPLP(max_iter=max_iter, tol=1e-6)
    n_right, gaps, scores, n_iter = [], [], [], []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for own, labels in zip(model.models(X), y, strict=True):
            found = mplp.map(own)
            n_right.append(np.sum(found.labels == labels))
            gaps.append((found.bound - found.score) / max(abs(found.bound), 1.0))
            scores.append(found.score / len(labels))
            n_iter.append(found.n_iter)
    return {
        "accuracy": float(sum(n_right) / sum(map(len, y))),
        "gap": float(np.mean(gaps)),
        "score": float(np.mean(scores)),
        "iterations": float(np.mean(n_iter)),
    }


def run_missing(run, pairs, settings, path):
    """Run all estimators and values of C that a file does not hold for these settings, and print the whole table.

    Parameters
    ----------
    run : callable
        ``run(name, strength)`` returns seconds, n_iter, and results of :func:`certified_accuracy` for train and test.
    pairs : list of (str, float)
    settings : dict
    path : Path
    """
    record = read_record(path, [])
    done = {(row["name"], row["strength"]) for row in record if row["settings"] == settings}
    for name, strength in pairs:
        if (name, strength) in done:
            continue
        record.append({"settings": settings, "name": name, "strength": strength, **run(name, strength)})
        write_record(path, record)
        print(f"{name}, C={strength:g}: {100 * record[-1]['test']['accuracy']:.2f} %", flush=True)
    print(settings)
    print(f"{'':18s}{'C':>8s}{'test %':>9s}{'train %':>9s}{'gap %':>9s}{'MPLP':>7s}{'iterations':>12s}{'seconds':>9s}")
    for row in record:
        if row["settings"] == settings:
            test = row["test"]
            print(
                f"{row['name']:18s}{row['strength']:>8.0e}{100 * test['accuracy']:>9.2f}"
                f"{100 * row['train']['accuracy']:>9.2f}{100 * test['gap']:>9.4f}{test['iterations']:>7.1f}"
                f"{row['n_iter']:>12d}{row['seconds']:>9.0f}"
            )
