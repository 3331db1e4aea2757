"""Table 1 and Figure 2 of Vickrey et al. 2010 on region graphs: cross-validated pixel-wise errors of all learners.

    python benchmarks/papers/ccg_scenes.py run [--folds 10] [--learners PL "CCG(ICM+PL)"] [--merge 20] [--results FILE]
    python benchmarks/papers/ccg_scenes.py table [--folds 10] [--merge 20] [--results FILE]
    python benchmarks/papers/ccg_scenes.py strengths [--fold 0] [--learners PL "CCG(ICM+PL)"] [--results FILE]
    python benchmarks/papers/ccg_scenes.py causes [--causes "1 a set"] [--results FILE]
    python benchmarks/papers/ccg_scenes.py curves [--folds 1] [--learners CD-1] [--results FILE]
    python benchmarks/papers/ccg_scenes.py figure [--folds 1] [--results FILE] [--picture FILE]

The data are 99 street scenes of the Stanford Background set (``stanford_superpixels`` in the folder that
SKLEARN_CRF_DATA names), with about 490 superpixels each. The paper used 715 images with larger regions. ``--merge 20``
merges the superpixels of an image to 20 regions. With the best possible labels of these regions, as many pixels are
wrong as in the paper. In each fold, features are scaled and reduced to principal components. ``--features all`` uses
scaled square roots of all 519 features, and allows up to 40 training rounds, until no new labelings are found. The cost
of a region is its area. The C of every learner is chosen on held-out images of the training part of each fold, except
for contrastive divergence, which has no C. ``causes`` changes one option at a time when training on merged scenes, and
evaluates on held-out images of the training parts of the first folds. Results are stored after every fit, and an
interrupted run continues.
"""

import argparse
import time
import warnings
from dataclasses import replace
from pathlib import Path

import _path  # noqa: F401  finds the support package
import numpy as np
from scipy.stats import ttest_1samp
from sklearn.exceptions import ConvergenceWarning
from support.record import read_record, write_record
from support.scene_learners import LEARNERS, ORDER, PAPER, RECORDED, REGIONS, SUPERPIXELS, WithChosenC, make_learner
from support.scene_regions import N_FOLDS, Fold, Scenes, parts_of_fold

# Number of rounds that most runs do not need; a stronger penalty, for ten times as many features.
UNREDUCED = {
    "n_components": None, "n_rounds": 40, "n_rounds_tried": 20, "n_planes": 60, "n_planes_tried": 30,
    "strengths": (1e-5, 1e-4, 1e-3, 1e-2),
}  # fmt: skip


def protocol_of(options):
    protocol = replace(REGIONS, n_regions=options.merge) if options.merge else SUPERPIXELS
    return replace(protocol, **UNREDUCED) if options.features == "all" else protocol


def opened(options, number):
    """Return a fold, as set by the options of the command line."""
    protocol = protocol_of(options)
    scenes = Scenes(protocol.n_regions)
    return Fold(scenes, *parts_of_fold(scenes, number), protocol)


def fitted(name, fold, C=None):
    """Return the fitted learner, its processor seconds and its chosen options; a given C is not chosen again."""
    before = time.process_time()
    if C is None:
        model, chosen = make_learner(name, fold)
    else:
        model, chosen = LEARNERS[name].make(C, fold.costs, fold.protocol, False), {}
    model.fit(fold.X, fold.y)
    return model, time.process_time() - before, chosen


def run(options):
    for number in range(options.folds):
        fold = None
        for name in options.learners:
            key = f"{name} fold {number}"
            if key in read_record(options.results, {}):
                continue
            fold = fold or opened(options, number)
            model, seconds, chosen = fitted(name, fold)
            error, of_images = fold.error(model)
            entry = {"error": error, "images": of_images, "seconds": seconds, "rounds": getattr(model, "n_rounds_", 0)}
            entry["error_max_product"], _ = fold.error(model, "max_product")
            # Another process may have written to the file meanwhile.
            write_record(options.results, read_record(options.results, {}) | {key: entry | chosen})
            print(
                f"{key}: {entry['error']:.4f} after {seconds:.0f} s, {entry['rounds']} rounds {chosen or ''}",
                flush=True,
            )


def errors_of(results, name, field="error"):
    """Return the errors of a learner by fold."""
    found = {}
    for number in range(N_FOLDS):
        entry = results.get(f"{name} fold {number}", {})
        if field in entry:
            found[number] = entry[field]
    return found


def table(options):
    kept = {f"{name} fold {number}" for name in ORDER for number in range(options.folds)}
    results = {key: entry for key, entry in read_record(options.results, {}).items() if key in kept}
    print("learner             error    std folds max-product    std rounds seconds  paper")
    print(f"{'Lower bound':18s} {Scenes(options.merge or None).best_error_rate():6.3f} {'':43s} {0.120:6.3f}")
    for name in ORDER:
        of_modes, of_messages = (list(errors_of(results, name, k).values()) for k in ("error", "error_max_product"))
        if len(of_modes) < 2:
            continue
        rounds, seconds = (np.mean(list(errors_of(results, name, k).values())) for k in ("rounds", "seconds"))
        paper = f"{PAPER[name]:6.3f}" if name in PAPER else " " * 6
        shown = f"{mean_and_spread(of_modes)} {len(of_modes):5d}      {mean_and_spread(of_messages)}"
        print(f"{name:18s} {shown} {rounds:6.0f} {seconds:7.1f} {paper}")
    print("\nWhat the paper has err less, and more: p of paired t-tests over folds, corrected among these (Holm)")
    print_differences(results, CLAIMED)
    print("\nOther differences")
    print_differences(results, OTHERS)
    print("\nError by max-product less error by iterated conditional modes")
    print_differences(results, BY_MESSAGES, "error_max_product")


def mean_and_spread(errors):
    return f"{np.mean(errors):6.3f} {np.std(errors, ddof=1):6.3f}" if len(errors) > 1 else " " * 13


def print_differences(results, pairs, field="error"):
    """Print ``field`` of the first learner minus the error of the second learner, over the folds that both have."""
    rows = []
    for a, b in pairs:
        of_a, of_b = errors_of(results, a, field), errors_of(results, b)
        differences = np.array([of_a[k] - of_b[k] for k in sorted(set(of_a) & set(of_b))])
        if len(differences) > 1:
            rows.append((a, b, differences, ttest_1samp(differences, 0).pvalue))
    for (a, b, differences, p), corrected in zip(rows, holm([row[-1] for row in rows]), strict=True):
        tests = f"p = {p:.2g}, corrected {corrected:.2g} ({len(differences)} folds)"
        print(f"{a:18s} {b:18s} {differences.mean():+.4f}  {tests}")


def holm(p):
    """Return p-values corrected by Holm's method, which bounds the chance of any false discovery among all tests."""
    p = np.array(p)
    order = np.argsort(p)
    corrected = np.empty(len(p))
    corrected[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)), 1)
    return corrected


GENERATED = ("CCG(ICM+PL)", "CCG(MP+PL)", "CCG(ICM-MV+PL)", "CCG(MP-MV+PL)")
SAMPLED = ("CCG(Gibbs-1+PL)", "CCG(Gibbs-10+PL)", "CCG(Gibbs-100+PL)")
#: Pairs of learners. In the paper, the first has an error that is lower by at least 0.01, called significant.
CLAIMED = [
    ("Independent", "PL"),
    *[(name, "Independent") for name in GENERATED],
    *[(name, "MM(ICM-MV)") for name in GENERATED],
    *[(name, "CCG(Gibbs-100+PL)") for name in GENERATED],
    ("CCG(ICM+PL)", "CD-10"),
]
OTHERS = [
    *[(name, "Independent") for name in (*SAMPLED, "CD-1", "CD-10", "CD-100", "MM(ICM-MV)", "MM(MP-MV)")],
    *[(f"CCG({way}+PL)", f"CCG({way})") for way in ("ICM", "MP", "ICM-MV", "MP-MV", "Gibbs-10")],
    *[(f"CCG({way}-MV{start})", f"CCG({way}{start})") for way in ("ICM", "MP") for start in ("+PL", "")],
    ("CCG(ICM-MV)", "MM(ICM-MV)"),
    ("CCG(MP-MV)", "MM(MP-MV)"),
    ("SGD-CCG(ICM+PL)", "CCG(ICM+PL)"),
]
BY_MESSAGES = [
    *[(name, name) for name in ORDER],
    *[("CCG(MP-MV+PL)", name) for name in ("Independent", "PL", "MM(ICM-MV)")],
]


def strengths(options):
    """Print the test error of one fold for every C, which shows how much the choice of C matters."""
    fold = None
    for name in options.learners:
        if not isinstance(LEARNERS[name], WithChosenC):
            continue
        for C in protocol_of(options).strengths:
            key = f"{name} C={C:g} fold {options.fold}"
            if key not in read_record(options.results, {}):
                fold = fold or opened(options, options.fold)
                model, seconds, _ = fitted(name, fold, C)
                of_modes, of_messages = (fold.error(model, inference)[0] for inference in ("icm", "max_product"))
                entry = {"error": of_modes, "error_max_product": of_messages, "seconds": seconds}
                write_record(options.results, read_record(options.results, {}) | {key: entry})
            entry = read_record(options.results, {})[key]
            print(
                f"{key}: {entry['error']:.4f}, max-product {entry['error_max_product']:.4f}, {entry['seconds']:.0f} s",
                flush=True,
            )


# Each change of the protocol, and the learners that it concerns.
TOLD_APART = ("Independent", "PL", "MM(ICM-MV)", "CCG(ICM-MV+PL)", "CCG(MP-MV+PL)", "Likelihood")
CAUSES = {
    "none": (TOLD_APART, {}),
    "1 a set": (TOLD_APART[3:5], {"generated_weight": 1.0}),
    "48 rounds": (TOLD_APART[3:4], {"n_rounds": 48}),
    "8 a round": (TOLD_APART[3:4], {"n_new": 8}),
    "pairs of classes": (TOLD_APART[1:4], {"pairwise": "symmetric"}),
    "30 components": (TOLD_APART[:4], {"n_components": 30}),
    "120 components": (TOLD_APART[:4], {"n_components": 120}),
    "60 regions": (TOLD_APART[:4], {"n_regions": 60}),
    "30 images": (TOLD_APART[:4], {"n_tried": 30}),
}
N_CAUSE_FOLDS, N_CAUSE_SPLITS = 3, 2


def causes(options):
    """Print errors on held-out images of training parts, at the C with the lowest mean error."""
    for cause in options.causes:
        names, change = CAUSES[cause]
        folds = None
        for name in names:
            key = f"{name} if {cause}"
            if key not in read_record(options.results, {}):
                folds = folds or held_out_folds(replace(REGIONS, **change))
                errors = {
                    f"{C:g}": [fold.error(fitted(name, fold, C)[0])[0] for fold in folds]
                    for C in folds[0].protocol.strengths
                }
                write_record(options.results, read_record(options.results, {}) | {key: errors})
            errors = read_record(options.results, {})[key]
            C = min(errors, key=lambda C: np.mean(errors[C]))
            print(f"{cause:18s} {name:18s} {mean_and_spread(errors[C])}  C = {C}", flush=True)


def held_out_folds(protocol):
    """Return folds made by splitting the training parts of the first folds."""
    scenes, n_held_out, folds = Scenes(protocol.n_regions), protocol.n_held_out, []
    for number in range(N_CAUSE_FOLDS):
        train, _ = parts_of_fold(scenes, number)
        for seed in range(N_CAUSE_SPLITS):
            order = np.random.default_rng([number, seed]).permutation(train)
            tried = order[n_held_out : n_held_out + protocol.n_tried]
            folds.append(Fold(scenes, np.sort(tried), np.sort(order[:n_held_out]), protocol))
    return folds


def curves(options):
    """Record the test error against processor time."""
    for number in range(options.folds):
        fold = None
        for name in (name for name in RECORDED if name in options.learners):
            key = f"{name} curve {number}"
            if key in read_record(options.results, {}):
                continue
            fold = fold or opened(options, number)
            model, _ = make_learner(name, fold, recorded=True)
            curve = [(seconds, fold.error(then)[0]) for seconds, then in model.record(fold.X, fold.y)]
            write_record(options.results, read_record(options.results, {}) | {key: curve})
            print(f"{key}: {len(curve)} points, {curve[-1][1]:.4f} after {curve[-1][0]:.1f} s", flush=True)


def mean_curve(found):
    """Return the mean errors of several folds at common times; an error holds until the next visit."""
    found = [np.array(curve) for curve in found]
    times = np.geomspace(max(curve[0, 0] for curve in found), max(curve[-1, 0] for curve in found), 40)
    held = [curve[np.searchsorted(curve[:, 0], times * (1 + 1e-9), side="right") - 1, 1] for curve in found]
    return times, np.mean(held, axis=0)


def figure(options):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    results = read_record(options.results, {})
    fig, axis = plt.subplots(figsize=(6, 4.2), layout="constrained")
    for name in RECORDED:
        keys = [f"{name} curve {number}" for number in range(options.folds)]
        if all(key in results for key in keys):
            axis.plot(*mean_curve([results[key] for key in keys]), label=name)
    axis.set(xlabel="seconds of processor time", ylabel="pixel-wise test error", xscale="log")
    fig.legend(loc="outside upper center", ncols=3, fontsize=8)
    fig.savefig(options.picture, dpi=120)


COMMANDS = {
    "run": run,
    "table": table,
    "strengths": strengths,
    "causes": causes,
    "curves": curves,
    "figure": figure,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=sorted(COMMANDS))
    parser.add_argument("--folds", type=int, default=N_FOLDS)
    parser.add_argument("--fold", type=int, default=0)
    parser.add_argument(
        "--merge", type=int, default=0, help="number of regions to which the superpixels of an image are merged"
    )
    parser.add_argument("--features", choices=["components", "all"], default="components")
    parser.add_argument("--causes", nargs="+", default=list(CAUSES), choices=list(CAUSES))
    parser.add_argument("--learners", nargs="+", default=ORDER, choices=sorted(LEARNERS))
    parser.add_argument("--results", type=Path, default=Path("ccg_scenes.json"))
    parser.add_argument("--picture", type=Path, default=Path("ccg_scenes.png"))
    options = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    COMMANDS[options.what](options)


if __name__ == "__main__":
    main()
