"""Limits on files that are read and on generated data; larger limits allow more memory use before an error."""

# Largest size in bytes of the decompressed text of a file; size in bytes of a chunk that is decompressed at once.
MAX_BYTES, CHUNK = 2**30, 2**20

# Maximum length of a word in characters, which is enough for any number.
LONGEST_WORD = 400

# Maximum number of states of a node; maximum number of entries of an array of marginals. Files that need more are
# refused.
MAX_STATES, MAX_MARGINALS = 2**20, 2**27

# Tables that list fewer entries than this fraction of their joint states are stored as lists.
# A list entry takes several times the memory of a table entry.
SPARSE_SHARE = 0.25

# Tables of cost function networks with at most this many entries are stored in full, however few entries are listed.
SMALL_TABLE = 4096

# A file may have MAX_NODES nodes, or MAX_UNUSED times as many nodes as there are nodes with factors.
# Nodes without factors also take memory, and a file of a few bytes must not be able to request gigabytes.
MAX_NODES, MAX_UNUSED = 1_000_000, 10

# Maximum number of copies of each shape: a hundred thousand copies take 13 GB.
MOST_COPIES = 100_000
