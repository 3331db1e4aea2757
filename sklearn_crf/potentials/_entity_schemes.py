"""Entity schemes, such as IOB2: prefixes of labels that mark runs of tokens."""

from functools import cache
from itertools import pairwise, product
from typing import NamedTuple


class EntityScheme(NamedTuple):
    """Label prefixes of one entity scheme, by the position of the token in its entity."""

    single: str  # prefix of the only token of an entity
    first: str
    inside: str
    last: str
    after_same: str = ""  # prefix of the first token of an entity directly after one of its kind
    before_same: str = ""  # prefix of a last token directly before an entity of the same kind, only used there

    @property
    def prefixes(self) -> str:
        """All prefixes of the scheme, in one string."""
        used = {"O", *self.single, *self.first, *self.inside, *self.last, *self.after_same, *self.before_same}
        return "".join(prefix for prefix in "IOBESLU" if prefix in used)

    def list_prefixes(self, found) -> list[list[str]]:
        """Return the prefixes of all tokens of each entity.

        Entities are tuples (kind, start, stop), sorted by start.
        """

        def touches(a, b):
            return a[0] == b[0] and a[2] == b[1]

        prefixes = []
        for i, (_, start, stop) in enumerate(found):
            size = stop - start
            wanted = [self.single] if size == 1 else [self.first, *[self.inside] * (size - 2), self.last]
            # A scheme separates adjacent entities of one kind by a prefix of either the second or the first entity.
            if self.after_same and i > 0 and touches(found[i - 1], found[i]):
                wanted[0] = self.after_same
            if self.before_same and i + 1 < len(found) and touches(found[i], found[i + 1]):
                wanted[-1] = self.before_same
            prefixes.append(wanted)
        return prefixes

    def parts_of(self, label) -> tuple[str, str] | None:
        """Split a label into prefix and kind, or return None if the prefix is not in the scheme."""
        prefix, _, kind = str(label).partition("-")
        return (prefix, kind) if len(prefix) == 1 and prefix in self.prefixes else None

    def may_follow(self, before, after) -> bool:
        """Return whether a label, given as (prefix, kind), can follow another label in a valid sequence."""
        is_same = before[1] == after[1] and "O" not in (before[0], after[0])
        return (before[0], after[0], is_same) in _list_successions(self)


@cache
def _list_successions(scheme):
    """Return all allowed successions: tuples of two prefixes and whether both labels are of one kind."""
    # Sequences of three entities of up to four tokens, with and without gaps, contain all allowed successions.
    sizes, gaps = (1, 2, 4), (0, 1)
    found = {("O", "O", False)}
    for choice in product(product("X", sizes, (0,)), *[list(product("XY", sizes, gaps))] * 2):
        spans, stop = [], 1
        for kind, size, gap in choice:
            spans.append((kind, stop + gap, stop + gap + size))
            stop += gap + size
        labels = [("O", "")] * (stop + 1)
        for (kind, start, stop_here), prefixes in zip(spans, scheme.list_prefixes(spans), strict=True):
            labels[start:stop_here] = [(prefix, kind) for prefix in prefixes]
        found.update((a[0], b[0], a[1] == b[1] != "") for a, b in pairwise(labels))
    return found


#: Entity schemes by name.
ENTITY_SCHEMES = {
    "IOB1": EntityScheme("I", "I", "I", "I", after_same="B"),
    "IOB2": EntityScheme("B", "B", "I", "I"),
    "IOE1": EntityScheme("I", "I", "I", "I", before_same="E"),
    "IOE2": EntityScheme("E", "I", "I", "E"),
    "IOBES": EntityScheme("S", "B", "I", "E"),
    "BILOU": EntityScheme("U", "B", "I", "L"),
}
