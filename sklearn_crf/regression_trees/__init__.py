"""Trees over images: which leaf a factor of a regression tree field falls into, and where leaves are split."""
