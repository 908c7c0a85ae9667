"""Tests of a share that may be looked at after every request without losing their confidence.

For a promise "at most a share q0 of the requests is over the limit", the evidence against the contrary is a
likelihood ratio mixed over every share under q0 (Robbins' method of mixtures), with a beta prior that is
cut at q0:

    E = integral_0^q0 q^t (1-q)^h prior(q) dq  /  ( q0^t (1-q0)^h )

If the true share is q0 or more, E is a non-negative supermartingale that starts at 1, so that it ever
reaches 1/alpha with probability alpha at most (Ville's inequality), however often one looks and whenever
one stops. The same mixture over the shares above q0 refutes the promise.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import special


def proves_share(within: Any, over: Any, share: float, confidence: float) -> Any:
    """As statistics.proves_share, at any time: the counts may be read whenever and as often as one likes."""
    return _log_evidence(within, over, 1 - share, below=True) >= -math.log(1 - confidence)


def refutes_share(within: Any, over: Any, share: float, confidence: float) -> Any:
    """As statistics.refutes_share, at any time."""
    return _log_evidence(within, over, 1 - share, below=False) >= -math.log(1 - confidence)


def _log_evidence(within: Any, over: Any, q0: float, *, below: bool) -> Any:
    """log E of two arrays of counts; the prior has its mean near the share that is worth telling apart."""
    h, t = np.asarray(within, float), np.asarray(over, float)
    a, b = (0.5, 0.5) if below else (0.5, 0.5 / (3 * q0))
    part = special.betainc if below else special.betaincc
    with np.errstate(divide="ignore"):
        mixed = special.betaln(t + a, h + b) + np.log(part(t + a, h + b, q0))
        prior = special.betaln(a, b) + np.log(part(a, b, q0))
        return mixed - prior - t * np.log(q0) - h * np.log1p(-q0)


def mean_reach(blocks: int, confidence: float) -> float:
    """How many standard errors of a mean over `blocks` blocks a bound stands off when looked at at any time.

    The two-sided asymptotic confidence sequence of Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas (2021),
    tightest at 50 blocks.
    """
    alpha = 2 * (1 - confidence)
    rho2 = (-2 * math.log(alpha) + math.log(-2 * math.log(alpha) + 1)) / 50
    m = float(blocks)
    return math.sqrt(2 * (m * rho2 + 1) / (m * rho2) * math.log(math.sqrt(m * rho2 + 1) / alpha))
