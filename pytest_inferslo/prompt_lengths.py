"""Whether prompts were as long as asked for, by the server's own count: what a word costs is an estimate."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pytest_inferslo.core.arrivals import Stream
from pytest_inferslo.core.samples import SAMPLE_DTYPE, Outcome, Rows
from pytest_inferslo.core.scenario import Scenario
from pytest_inferslo.storage.samples import read_batches

_LOOKED_AT = 256
#: What a chat template may add to each prompt, tokens; beyond that, so much of the length may be off.
_TEMPLATE = 40
_TOLERANCE = 0.2


def length_notes(scenario: Scenario, directory: Path) -> list[str]:
    """A note for each stream whose prompts the server counts as much longer or shorter than asked for.

    Looks at the first answers of the run in `directory` that carry a count. Prompts of a file have no length that was
    asked for.
    """
    rows = _counted(directory)
    given = scenario.schedule().input_tokens if scenario.open_loop and len(rows) else None
    notes = []
    for number, stream in enumerate(scenario.streams):
        source = scenario.prompt_source(stream=number)
        pairs = []
        for row in rows[rows["stream"] == number]:
            index = int(row["index"])
            asked = source.prompt(
                index,
                warm_up=bool(row["intended"] < scenario.window_ns[0]),
                input_tokens=None if given is None or given[index] <= 0 else int(given[index]),
            ).input_tokens
            if asked:
                pairs.append((asked, int(row["prompt_tokens"])))
        if pairs:
            where = f"stream {stream.name}: " if len(scenario.streams) > 1 else ""
            notes += [where + text for text in _compared(stream, np.array(pairs))]
    return notes


def _compared(stream: Stream, pairs: np.ndarray[tuple[int, int], np.dtype[np.int64]]) -> list[str]:
    asked, counted = np.median(pairs, axis=0).tolist()
    if abs(float(np.median(pairs[:, 1] - pairs[:, 0]))) <= _TEMPLATE + _TOLERANCE * asked:
        return []
    if getattr(stream.prompts, "tokenizer", None) is not None:
        advice = "the tokenizer of the scenario is not the server's"
    else:
        cost = getattr(stream.prompts, "tokens_per_word", 1.0) * counted / asked
        advice = f"say tokens_per_word={cost:.2f}, or name the model's tokenizer"
    return [
        f"prompts have {counted:,.0f} tokens by the server's count where {asked:,.0f} were asked for (medians):"
        f" {advice}"
    ]


def _counted(directory: Path) -> Rows:
    """The first successes that say how long their prompt was."""
    found: list[Rows] = [np.zeros(0, SAMPLE_DTYPE)]
    for batch in read_batches(directory, on_incomplete=lambda _: None):
        rows = batch.samples
        found.append(rows[(rows["outcome"] == Outcome.SUCCESS) & (rows["prompt_tokens"] >= 0)][:_LOOKED_AT])
        if sum(map(len, found)) >= _LOOKED_AT:
            break
    return np.concatenate(found)[:_LOOKED_AT]
