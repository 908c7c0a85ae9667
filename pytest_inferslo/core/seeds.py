"""Where randomness comes from: one seed, one independent stream of numbers per purpose.

Sequences (arrivals) come from PCG64. What must be a pure function of a request's index (its prompt, its
adapter, its endpoint) comes from a counter-based hash, splitmix64 (Steele, Lea, Flood: "Fast splittable
pseudorandom number generators", 2014), so that any worker computes any request without the ones before it.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

_MASK = (1 << 64) - 1
_GAMMA = 0x9E3779B97F4A7C15


def generator(seed: int, *purpose: int) -> np.random.Generator:
    """A PCG64 generator of its own for `purpose`, a path of small whole numbers."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=purpose)))


def key(seed: int, purpose: str) -> int:
    """64 bits that differ for every seed and every purpose."""
    digest = hashlib.blake2b(f"{seed}/{purpose}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def mixed(key: int, counter: int) -> int:
    """The 64-bit number at `counter` of the stream `key`."""
    z = (key + (counter + 1) * _GAMMA) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def mixed_array(key: int, counters: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """`mixed` for many counters at once."""
    z = np.uint64(key) + (counters.astype(np.uint64) + np.uint64(1)) * np.uint64(_GAMMA)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def uniform(key: int, counter: int) -> float:
    """A number in [0, 1) with 53 random bits."""
    return (mixed(key, counter) >> 11) * 2.0**-53


def uniform_array(key: int, counters: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """`uniform` for many counters at once."""
    return (mixed_array(key, counters) >> np.uint64(11)).astype(np.float64) * 2.0**-53
