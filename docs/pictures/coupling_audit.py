"""Heat maps of the coupling audits of two data sets, from results of benchmarks/quality/coupling_audits.py."""

import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from sklearn_crf.display import CouplingAuditDisplay

# The plot directive runs this script in its own folder.
folder = Path("..") / "results" / "coupling_audit"
titles = {"horses": "30 horses, 32 x 40 pixels", "camvid": "41 street frames, superpixels"}
figure, axes = plt.subplots(1, 2, figsize=(12, 3.6), layout="constrained")
for ax, (name, title) in zip(axes, titles.items(), strict=True):
    kept = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    CouplingAuditDisplay.from_results({key: np.array(values) for key, values in kept.items()}, ax=ax)
    ax.set_title(title)
