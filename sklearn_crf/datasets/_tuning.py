"""Limits on the size of files and of generated data; with larger limits, more memory may be used before an error."""

# MAX_BYTES: maximum size in bytes of the decompressed text of a file.
# CHUNK: number of bytes that are decompressed at once.
MAX_BYTES, CHUNK = 2**30, 2**20

# Maximum length of a word in characters, which is enough for any number.
LONGEST_WORD = 400

# Maximum number of states of a node; maximum number of entries in an array of marginals.
# Files that exceed these limits raise an error.
MAX_STATES, MAX_MARGINALS = 2**20, 2**27

# A table is stored as a list of entries if fewer than this fraction of its joint states are listed.
# A list entry needs several times as much memory as a table entry.
SPARSE_SHARE = 0.25

# Tables of cost function networks with at most this many entries are stored in full, however few entries are listed.
SMALL_TABLE = 4096

# Maximum number of nodes in a file: MAX_NODES, or MAX_UNUSED times the number of nodes with factors if that is more.
# Nodes without factors also need memory. Without this limit, a file of a few bytes could request gigabytes.
MAX_NODES, MAX_UNUSED = 1_000_000, 10

# Maximum number of noisy copies of each shape. A hundred thousand copies need 13 GB of memory.
MOST_COPIES = 100_000

# In files of logarithms, scores up to this value mean -inf, because toulbar2 1.3 misreads "-inf".
FORBIDDEN = -1e30
