"""
What ``inference="auto"`` chooses
=================================

The automatic choice is exact if exact inference is affordable. The cost of eliminating
nodes is known in advance. The first picture is the decision table. The second picture
shows where the rule for affordable inference,
:func:`~sklearn_crf.inference.exact_inference`, chooses exact inference, for square
grids of different sides and numbers of states. Dark squares mark grids with exact
marginals and exact best labelings. The third picture shows the errors of belief
propagation on grids for which the automatic choice is exact.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import FancyBboxPatch

from sklearn_crf.graphs import lattice
from sklearn_crf.inference import (
    AutoMarginals,
    LoopyBP,
    convergence_left_to_caller,
    exact_inference,
)
from sklearn_crf.models import PairwiseModel

# %%
# The decision table
# ------------------

QUESTIONS = [
    ("no cycles?", "tree", "tree"),
    ("at most 4,096 labelings?", None, "enumeration"),
    ("two states, all edges submodular?", None, "minimum cut"),
    ("is elimination affordable?", "junction tree", "junction tree"),
]
OTHERWISE = (
    "belief propagation;\ndamped, if it does not settle;\n"
    "averaged, if that does not either;\n"
    "mixed over fixed points,\nif edges are strong",
    "roof duality or expansions, TRW-S;\nICM, max-product, AD3,\n"
    "if they do not meet the bound;\n"
    "climbing and fusion of all;\nif far below, elimination over\n"
    "likely states, large neighbourhoods",
)


def box(ax, x, y, text, colour, width=0.3, height=0.11):
    """Draw a rounded box around a text."""
    ax.add_patch(
        FancyBboxPatch(
            (x - width / 2, y - height / 2),
            width,
            height,
            boxstyle="round,pad=0.01",
            fc=colour,
            ec="0.3",
        )
    )
    ax.text(x, y, text, ha="center", va="center", fontsize=9)


fig, ax = plt.subplots(figsize=(8, 6.2))
ax.axis("off")
ax.set(xlim=(0, 1), ylim=(-0.1, 1))
for x, title in (
    (0.47, "marginals (AutoMarginals)"),
    (0.83, "best labeling (AutoMap)"),
):
    ax.text(x, 0.97, title, ha="center", weight="bold", fontsize=10)
for row, (question, for_marginals, for_labeling) in enumerate(QUESTIONS):
    y = 0.86 - 0.18 * row
    ax.text(0.01, y, question, va="center", fontsize=9)
    for x, answer in ((0.47, for_marginals), (0.83, for_labeling)):
        if answer is None:
            ax.text(
                x, y, "not asked", ha="center", va="center", fontsize=9, color="0.6"
            )
        else:
            box(ax, x, y, answer, "#cfe8cf")
ax.text(0.01, 0.06, "otherwise", va="center", fontsize=9)
for x, answer in zip((0.47, 0.83), OTHERWISE, strict=True):
    box(ax, x, 0.06, answer, "#f3ddc2", 0.31, 0.25)
fig.tight_layout()

# The user guide shows this picture.
if "--save" in sys.argv:
    fig.savefig("docs/_static/automatic_choice.png", dpi=110)

# %%
# Affordable exact inference
# --------------------------

sides, numbers_of_states = np.arange(2, 21), np.array([2, 3, 4, 6, 8, 12, 16])
exact = [
    [exact_inference(lattice((side, side)), k) is not None for side in sides]
    for k in numbers_of_states
]

fig, ax = plt.subplots(figsize=(7, 3))
ax.imshow(exact, cmap="Greens", vmin=0, vmax=1.6, aspect="auto", origin="lower")
ax.set_xticks(range(len(sides)), sides)
ax.set_yticks(range(len(numbers_of_states)), numbers_of_states)
ax.set(xlabel="side of a square grid", ylabel="states", title="dark: exact inference")
fig.tight_layout()

# %%
# Errors of belief propagation
# ----------------------------
# The picture shows the mean error of the marginals of belief propagation on grids of
# 10 x 10 nodes, against the strength of couplings of both signs. The marginals of the
# automatic choice are exact.

strengths, errors = np.linspace(0.2, 2.0, 7), []
for strength in strengths:
    errors.append([])
    for seed in range(3):
        rng = np.random.default_rng(seed)
        grid = lattice((10, 10))
        weight = strength * rng.normal(size=grid.n_edges)
        unary = 0.5 * rng.normal(size=(100, 2))
        model = PairwiseModel(
            grid, unary, [[[1.0, -1.0], [-1.0, 1.0]]], edge_weight=weight
        )
        with convergence_left_to_caller():
            loopy = LoopyBP().marginals(model)
        found = AutoMarginals().marginals(model)
        errors[-1].append(np.abs(loopy.unary - found.unary).mean())

weak, strong = np.mean(errors[0]), np.mean(errors[-1])
print(f"errors of belief propagation: {weak:.3f} (weak) to {strong:.3f} (strong)")
fig, ax = plt.subplots(figsize=(6, 3))
ax.plot(strengths, np.mean(errors, axis=1), "o-", label="belief propagation")
ax.axhline(0.0, color="C2", label=f"auto ({found.method}, {found.bound})")
ax.set(xlabel="standard deviation of the couplings", ylabel="mean error of marginals")
ax.legend()
fig.tight_layout()
plt.show()
