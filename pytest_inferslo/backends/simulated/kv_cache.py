"""KV-cache blocks of the simulated engine, with a prefix cache over full blocks.

Blocks have no identity beyond the hash of what they hold: a block is private to one request (counted), or
published under its hash with a reference count. Published blocks without references stay until they are
evicted, oldest first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence


class BlockPool:
    """`total` blocks of `block_size` tokens."""

    def __init__(self, total: int, block_size: int) -> None:
        self.total = total
        self.block_size = block_size
        self._private = 0
        self._references: dict[int, int] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()

    @property
    def used(self) -> int:
        """Blocks that some request holds; cached blocks without a holder count as free, as in vLLM."""
        return self._private + len(self._references) - len(self._idle)

    def allocate(self, count: int) -> bool:
        """Takes `count` private blocks, evicting idle cached ones where needed; all or nothing."""
        if self.used + count > self.total:
            return False
        self._private += count
        for _ in range(self._private + len(self._references) - self.total):
            evicted, _none = self._idle.popitem(last=False)
            del self._references[evicted]
        return True

    def release(self, count: int) -> None:
        """Gives private blocks back."""
        self._private -= count

    def cached_prefix(self, hashes: Sequence[int]) -> int:
        """How many leading hashes are in the cache."""
        for index, block in enumerate(hashes):
            if block not in self._references:
                return index
        return len(hashes)

    def hold(self, hashes: Sequence[int]) -> None:
        """Adds a reference to blocks that are in the cache."""
        for block in hashes:
            self._references[block] += 1
            self._idle.pop(block, None)

    def publish(self, hashes: Sequence[int]) -> None:
        """Turns as many private blocks into cached ones, held by the caller; twins are freed."""
        for block in hashes:
            self._private -= 1
            self._references[block] = self._references.get(block, 0) + 1
            self._idle.pop(block, None)

    def drop(self, hashes: Sequence[int]) -> None:
        """Takes a reference away; the last blocks of a sequence become the first to be evicted."""
        for block in reversed(hashes):
            self._references[block] -= 1
            if self._references[block] == 0:
                self._idle[block] = None

    def reset(self) -> bool:
        """Forgets the cache; refused (False) while any block is held, as in vLLM."""
        if self.used:
            return False
        self._references.clear()
        self._idle.clear()
        return True


def block_hashes(tokens: Sequence[object], block_size: int, parent: int, start: int = 0) -> list[int]:
    """Chained hashes of the full blocks of tokens[start:]; `parent` is the hash of what came before."""
    hashes = []
    for at in range(start, len(tokens) - block_size + 1, block_size):
        parent = hash((parent, *tokens[at : at + block_size]))
        hashes.append(parent)
    return hashes
