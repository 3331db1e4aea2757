"""Images that fields are given: how they are read, what is missing, and what corrupts and degrades them."""
