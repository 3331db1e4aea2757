"""Demonstration: restore noisy digits, and segment a photograph from a few strokes.

    python examples/demo.py --output demo_output
    python examples/demo.py --readme docs/_static/demo.png

Prints the fraction of wrong pixels of the unary model (each pixel by itself) and of the field, and writes pictures.
"""

import argparse
import time
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_sample_image
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

from sklearn_crf import DRFClassifier
from sklearn_crf.datasets import make_noisy_digits
from sklearn_crf.preprocessing import LocalImageFeatures, NodeTransformer

PAPER, INK = "#f4f1de", "#1d3557"
COLOURS = {"sky": (0.55, 0.75, 0.95), "temple": (0.80, 0.20, 0.15), "trees": (0.15, 0.45, 0.20)}

# Strokes of a user on the photograph, each from (x, y) to (x, y) in pixels. CHECKS are strokes for measuring errors.
STROKES = {
    "sky": [((20, 40), (120, 60)), ((280, 60), (600, 40)), ((345, 190), (480, 180)), ((350, 260), (520, 255))],
    "temple": [
        *[((204, 40), (204, 395)), ((150, 180), (150, 330)), ((280, 130), (280, 330)), ((310, 355), (355, 335))],
        *[((130, 105), (290, 110)), ((120, 160), (300, 160)), ((75, 262), (330, 252))],
    ],
    "trees": [
        *[((30, 390), (190, 390)), ((590, 150), (590, 400)), ((400, 390), (520, 300)), ((15, 200), (50, 225))],
        *[((560, 210), (620, 170)), ((350, 400), (420, 340))],
    ],
}
CHECKS = {
    "sky": [((40, 110), (80, 140)), ((340, 110), (560, 130)), ((400, 290), (430, 300)), ((20, 300), (60, 300))],
    "temple": [((120, 180), (310, 170)), ((180, 80), (230, 80)), ((90, 290), (330, 280)), ((180, 345), (330, 320))],
    "trees": [((10, 250), (40, 270)), ((120, 405), (240, 400)), ((560, 250), (630, 260)), ((330, 390), (460, 330))],
}


def main():
    """Run the digits and the photograph demonstrations."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("demo_output"), help="folder for the pictures")
    parser.add_argument("--readme", type=Path, help="only segment the photograph, into the picture of README.rst")
    arguments = parser.parse_args()
    output = arguments.output
    if arguments.readme:
        panels = segment_photograph()
        del panels["strokes kept aside"]
        save(show_panels(panels, columns=3, width=4.6), arguments.readme, dpi=80)
        return
    output.mkdir(parents=True, exist_ok=True)
    restore_digits(output)
    save(show_panels(segment_photograph(), columns=2, width=6.0), output / "photograph.png")
    print(f"\nPictures are in {output}/")


def report(task, wrong_unary, wrong_field, seconds):
    """Print the errors of both models."""
    print(f"\n{task}")
    print(f"  unary model: {100 * wrong_unary:5.2f} % of pixels wrong")
    print(f"  field:       {100 * wrong_field:5.2f} % of pixels wrong   ({seconds:.1f} s to learn and predict)")


# Digits -------------------------------------------------------------------------------------------------------------


def restore_digits(output):
    """Learn from 60 noisy digits, and restore 400 other digits."""
    X, y, _ = make_noisy_digits(460, noise="gaussian", level=0.6, scale=3, random_state=0)
    X_train, y_train, X_test, y_test = X[:60], y[:60], X[60:], y[60:]
    unary = DRFClassifier().fit(X_train.reshape(-1, 1), y_train.ravel())
    alone = unary.predict(X_test.reshape(-1, 1)).reshape(y_test.shape)
    start = time.perf_counter()
    together = DRFClassifier().fit(X_train, y_train).predict(X_test)
    seconds = time.perf_counter() - start
    report("Noisy handwritten digits", np.mean(alone != y_test), np.mean(together != y_test), seconds)
    chosen = range(10, 20)
    rows = {"noisy": X_test[..., 0], "truth": y_test, "unary only": alone, "field": together}
    figure, axes = plt.subplots(len(rows), len(chosen), figsize=(11, 4.9), layout="constrained")
    ink = matplotlib.colors.LinearSegmentedColormap.from_list("ink", [PAPER, INK])
    for line, (name, images) in zip(axes, rows.items(), strict=True):
        for ax, i in zip(line, chosen, strict=True):
            ax.imshow(images[i], cmap=ink, vmin=-0.5 if name == "noisy" else 0, vmax=1.5 if name == "noisy" else 1)
            ax.set(xticks=[], yticks=[])
        line[0].set_ylabel(name, fontsize=12)
    figure.suptitle("Handwritten digits seen through noise, and restored", fontsize=14)
    save(figure, output / "digits.png")


# A photograph -------------------------------------------------------------------------------------------------------


def segment_photograph():
    """Segment a photograph from a few strokes, print errors on other strokes, and return pictures by title."""
    image = reduced(load_sample_image("china.jpg") / np.float32(255), 3)
    given, checks = (draw_strokes(strokes, image.shape[:2], 3) for strokes in (STROKES, CHECKS))
    features = make_pipeline(
        LocalImageFeatures(("intensity", "mean", "deviation"), scales=(1.5,)),
        NodeTransformer(make_pipeline(StandardScaler(), PolynomialFeatures(2, include_bias=False), StandardScaler())),
    )
    X = features.fit_transform(image[np.newaxis])
    rows, marked = X.reshape(-1, X.shape[-1]), given.ravel() >= 0
    unary = DRFClassifier(C=0.1).fit(rows[marked], given.ravel()[marked])
    alone = unary.predict(rows).reshape(given.shape)
    start = time.perf_counter()
    field = DRFClassifier(C=0.1, missing_label=-1, pairwise="potts", edge_features=colour_likeness)
    together = field.fit(X, given[np.newaxis]).predict(X)[0]
    seconds = time.perf_counter() - start
    known = checks >= 0
    wrong = [np.mean(labels[known] != checks[known]) for labels in (alone, together)]
    report(f"A photograph from {np.mean(marked):.1%} marked pixels (errors on other strokes)", *wrong, seconds)
    palette = np.array(list(COLOURS.values()))
    return {
        "photograph and strokes": with_strokes(image, given, palette),
        "strokes kept aside": with_strokes(image, checks, palette),
        f"each pixel alone: {wrong[0]:.1%} wrong": 0.35 * image + 0.65 * palette[alone],
        f"the same features in a field: {wrong[1]:.1%} wrong": 0.35 * image + 0.65 * palette[together],
    }


def draw_strokes(strokes, shape, factor):
    """Return an image with the class index of each marked pixel, and -1 elsewhere."""
    labels = np.full(shape, -1)
    for column, lines in enumerate(strokes.values()):
        for (x0, y0), (x1, y1) in lines:
            along = np.linspace(0, 1, 1000)
            x, y = x0 + (x1 - x0) * along, y0 + (y1 - y0) * along
            for thickness in (-1, 0, 1):
                labels[np.clip((y / factor).astype(int) + thickness, 0, shape[0] - 1), (x / factor).astype(int)] = (
                    column
                )
    return labels


def colour_likeness(x_tail, x_head):
    """Return a constant and the similarity of the colours of neighbouring pixels."""
    difference = np.abs(x_tail[:, :3] - x_head[:, :3]).mean(axis=1)
    return np.stack([np.ones_like(difference), np.exp(-4 * difference)], axis=1)


def with_strokes(image, labels, palette):
    """Return a pale image on which the marked pixels have the colour of their class."""
    shown = 0.6 * image + 0.4
    shown[labels >= 0] = palette[labels[labels >= 0]]
    return shown


# Pictures -----------------------------------------------------------------------------------------------------------


def reduced(image, factor):
    """Return the mean of each square block of pixels, without incomplete blocks at the border."""
    height, width = (n // factor for n in image.shape[:2])
    cut = image[: height * factor, : width * factor]
    return cut.reshape(height, factor, width, factor, *image.shape[2:]).mean(axis=(1, 3))


def show_panels(panels, columns, width):
    """Return a figure with panels in rows; a key is a title, or a pair (title, row) whose title is shown in row 0."""
    n_rows = len(panels) // columns
    figure, axes = plt.subplots(n_rows, columns, figsize=(columns * width, n_rows * width * 0.74), layout="constrained")
    for ax, (name, picture) in zip(axes.ravel(), panels.items(), strict=True):
        ax.imshow(np.clip(picture, 0, 1))
        ax.set_axis_off()
        if isinstance(name, str) or name[1] == 0:
            ax.set_title(name if isinstance(name, str) else name[0], fontsize=13)
    return figure


def save(figure, path, dpi=110):
    """Write a figure to a file and close it."""
    figure.savefig(path, dpi=dpi)
    plt.close(figure)
    print(f"  {path}")


if __name__ == "__main__":
    main()
