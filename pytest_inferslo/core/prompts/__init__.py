"""Prompts: what requests ask. A pure function of (seed, index), so that any worker makes any request."""

from pytest_inferslo.core.prompts.blocks import BlockPrompts
from pytest_inferslo.core.prompts.dataset import Dataset
from pytest_inferslo.core.prompts.lengths import KINDS as LENGTHS
from pytest_inferslo.core.prompts.lengths import Lengths, lognormal, normal, uniform, zipf
from pytest_inferslo.core.prompts.source import Prompt, Prompts, PromptSource
from pytest_inferslo.core.prompts.synthetic import Synthetic, synthetic
from pytest_inferslo.core.prompts.text import TokenCounts

#: What a scenario takes as its prompts.
PROMPTS: tuple[type, ...] = (Synthetic, Dataset, BlockPrompts)
#: Every class of a saved scenario's prompts, by its `kind`.
KINDS: dict[str, type] = {cls.kind: cls for cls in (*PROMPTS, TokenCounts, *LENGTHS)}  # type: ignore[attr-defined]

__all__ = [
    "KINDS", "PROMPTS", "BlockPrompts", "Dataset", "Lengths", "Prompt", "PromptSource", "Prompts", "Synthetic",
    "TokenCounts",
    "lognormal", "normal", "synthetic", "uniform", "zipf",
]  # fmt: skip
