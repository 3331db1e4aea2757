"""Put the folder of all benchmarks on the path, where their common package ``support`` is."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
