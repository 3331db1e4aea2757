"""A snake: the colour of a cell gives the direction of the next cell, labels count along the path."""

import matplotlib.pyplot as plt
import numpy as np

path = [(1, 1), (1, 2), (2, 2), (2, 3), (2, 4), (1, 4)]
directions = {(0, 1): "right", (1, 0): "down", (-1, 0): "up"}
colours = {"right": "C0", "down": "C1", "up": "C2", "end": "C3"}
figure, axes = plt.subplots(1, 2, figsize=(7, 2.6), layout="constrained")
for number, (row, column) in enumerate(path):
    step = tuple(np.subtract(path[number + 1], path[number])) if number < 5 else None
    name = directions.get(step, "end")
    axes[0].add_patch(plt.Rectangle((column, row), 1, 1, color=colours[name]))
    axes[1].add_patch(plt.Rectangle((column, row), 1, 1, color="0.85"))
    axes[0].text(column + 0.5, row + 0.5, name, ha="center", va="center", color="white", fontsize=9)
    axes[1].text(column + 0.5, row + 0.5, number + 1, ha="center", va="center", fontsize=14)
for ax, title in zip(axes, ["input", "labels"], strict=True):
    ax.set(title=title, xlim=(0, 6), ylim=(4, 0), xticks=range(7), yticks=range(5), aspect="equal")
    ax.tick_params(labelbottom=False, labelleft=False, length=0)
    ax.grid(True)
