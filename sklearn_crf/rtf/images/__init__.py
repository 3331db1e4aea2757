"""Images as input of fields: reading, missing pixels, corruptions and degradations."""
