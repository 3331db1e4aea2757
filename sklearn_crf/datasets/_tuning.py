"""Limits of files that are read and of data that are made: larger ones take more memory before they are refused."""

# Bytes of text, after decompression, that a file may hold, and that are decompressed at once.
MAX_BYTES, CHUNK = 2**30, 2**20

# Characters of the longest word: no number needs as many.
LONGEST_WORD = 400

# States of one node, and numbers in an array of marginals: files that ask for more are refused.
MAX_STATES, MAX_MARGINALS = 2**20, 2**27

# A table with fewer entries than this share of its joint states is kept as a list of them: an entry of a list takes the
# memory of several of a table.
SPARSE_SHARE = 0.25

# Nodes that no factor uses take memory too: a file of a few bytes must not ask for gigabytes.
MAX_NODES, MAX_UNUSED = 1_000_000, 10

# Most copies of each shape: a hundred thousand take 13 GB.
MOST_COPIES = 100_000
