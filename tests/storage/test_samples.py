"""The sample files: what is written comes back, also while growing, after a crash and after damage."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from pytest_inferslo.core.samples import ABSENT, GAP_DTYPE, SAMPLE_DTYPE, SampleBatch
from pytest_inferslo.errors import RecordError
from pytest_inferslo.storage.samples import (
    GAPS_FILE,
    SAMPLES_FILE,
    IncompleteRecordWarning,
    SampleWriter,
    read_batches,
)


def batch(first: int, rows: int, gaps: int = 3) -> SampleBatch:
    rng = np.random.default_rng(first)
    samples = np.zeros(rows, SAMPLE_DTYPE)
    for name in SAMPLE_DTYPE.names or ():
        info = np.iinfo(SAMPLE_DTYPE[name])
        samples[name] = rng.integers(info.min, info.max, rows, dtype=SAMPLE_DTYPE[name], endpoint=True)
    samples["index"] = np.arange(first, first + rows)
    gap_rows = np.zeros(gaps, GAP_DTYPE)
    gap_rows["bucket"] = rng.integers(0, 1000, gaps)
    gap_rows["count"] = 1
    return SampleBatch(samples, gap_rows)


def write(directory: Path, batches: list[SampleBatch]) -> None:
    with SampleWriter(directory) as writer:
        for each in batches:
            writer.append(each)


def everything(directory: Path) -> SampleBatch:
    return SampleBatch.concatenate(read_batches(directory))


def test_every_field_of_every_row_comes_back(tmp_path: Path) -> None:
    batches = [
        batch(0, 50),
        batch(50, 7, gaps=0),
        batch(57, 0, gaps=2),
        SampleBatch.empty(),
        batch(57, 30_000),
    ]
    write(tmp_path, batches)
    expected, found = SampleBatch.concatenate(batches), everything(tmp_path)
    assert np.array_equal(found.samples, expected.samples)
    assert np.array_equal(found.gaps, expected.gaps)


def test_a_run_without_samples_reads_as_empty(tmp_path: Path) -> None:
    write(tmp_path, [])
    assert list(read_batches(tmp_path)) == []


def test_other_arrow_readers_open_the_files(tmp_path: Path) -> None:
    write(tmp_path, [batch(0, 10), batch(10, 5)])
    table = pa.ipc.open_stream(str(tmp_path / SAMPLES_FILE)).read_all()
    assert table.column_names == list(SAMPLE_DTYPE.names or ())
    assert table.column("index").to_pylist() == list(range(15))


def test_absent_stays_absent(tmp_path: Path) -> None:
    rows = np.full(3, ABSENT, SAMPLE_DTYPE[["index"]].fields["index"][0])  # type: ignore[index]
    samples = np.zeros(3, SAMPLE_DTYPE)
    samples["first"] = rows
    write(tmp_path, [SampleBatch(samples, np.empty(0, GAP_DTYPE))])
    assert everything(tmp_path).samples["first"].tolist() == [ABSENT] * 3


def test_small_batches_are_joined_and_large_ones_stay(tmp_path: Path) -> None:
    write(tmp_path, [batch(i * 100, 100) for i in range(400)] + [batch(40_000, 20_000)])
    sizes = [len(each) for each in read_batches(tmp_path)]
    assert sum(sizes) == 60_000
    assert len(sizes) < 8
    assert max(sizes) < 40_000, "memory stays bounded by one batch"


def test_what_was_appended_is_readable_without_close(tmp_path: Path) -> None:
    writer = SampleWriter(tmp_path)
    writer.append(batch(0, 10))
    with pytest.warns(IncompleteRecordWarning) as caught:
        assert len(everything(tmp_path)) == 10
    assert "samples.arrow ends without its end marker, after 1 whole" in str(caught[0].message)
    assert "gaps.arrow" in str(caught[1].message)
    writer.close()
    assert len(everything(tmp_path)) == 10


def test_any_cut_keeps_the_whole_batches_and_is_reported(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    sizes = []
    with SampleWriter(whole) as writer:
        for i in range(3):
            writer.append(batch(i * 10, 10))
            sizes.append((whole / SAMPLES_FILE).stat().st_size)
    data = (whole / SAMPLES_FILE).read_bytes()
    cut = tmp_path / "cut"
    cut.mkdir()
    (cut / GAPS_FILE).write_bytes((whole / GAPS_FILE).read_bytes())
    for length in [*range(0, len(data), 37), *sizes, *(size + 4 for size in sizes), len(data) - 1]:
        (cut / SAMPLES_FILE).write_bytes(data[:length])
        reports: list[str] = []
        found = SampleBatch.concatenate(read_batches(cut, on_incomplete=reports.append))
        assert len(found.samples) == 10 * sum(size <= length for size in sizes), length
        assert len(reports) == 1, length
        assert SAMPLES_FILE in reports[0]


def test_a_tail_of_zeros_is_a_cut(tmp_path: Path) -> None:
    writer = SampleWriter(tmp_path)
    writer.append(batch(0, 10))
    with (tmp_path / SAMPLES_FILE).open("ab") as file:
        file.write(bytes(5000))
    reports: list[str] = []
    assert len(SampleBatch.concatenate(read_batches(tmp_path, on_incomplete=reports.append))) == 10
    assert any(SAMPLES_FILE in report for report in reports)
    writer.close()


@pytest.mark.parametrize("where", ["start", "second message", "body"])
def test_damage_is_refused(tmp_path: Path, where: str) -> None:
    with SampleWriter(tmp_path) as writer:
        starts = []
        for i in range(3):
            starts.append((tmp_path / SAMPLES_FILE).stat().st_size)
            writer.append(batch(i * 10, 10))
    path = tmp_path / SAMPLES_FILE
    data = bytearray(path.read_bytes())
    at = {"start": 0, "second message": starts[1], "body": starts[2] - 600}[where]
    data[at : at + 500] = b"\xa5" * 500
    path.write_bytes(bytes(data))
    with pytest.raises(RecordError, match=r"samples\.arrow is damaged after \d batches.*restore"):
        list(read_batches(tmp_path))


def test_another_version_is_refused(tmp_path: Path) -> None:
    write(tmp_path, [])
    schema = pa.schema([pa.field("index", pa.int64())], metadata={"inferslo.schema_version": "7"})
    with pa.ipc.new_stream(str(tmp_path / SAMPLES_FILE), schema):
        pass
    with pytest.raises(RecordError, match=r"schema version 7.*reads version 1"):
        list(read_batches(tmp_path))


def test_missing_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"samples\.arrow is missing.*run\.json"):
        list(read_batches(tmp_path))


def test_a_run_is_recorded_once(tmp_path: Path) -> None:
    write(tmp_path, [batch(0, 1)])
    with pytest.raises(RecordError, match="exists already"):
        SampleWriter(tmp_path)
    assert len(everything(tmp_path)) == 1


def test_following_sees_batches_as_they_come_and_ends_with_the_writer(tmp_path: Path) -> None:
    seen: list[int] = []
    got_first = threading.Event()

    def follow() -> None:
        for each in read_batches(tmp_path, follow=True, poll_seconds=0.005):
            seen.append(len(each))
            got_first.set()

    reader = threading.Thread(target=follow)
    reader.start()
    writer = SampleWriter(tmp_path)
    writer.append(batch(0, 10))
    assert got_first.wait(20), "the first batch is visible before the writer closes"
    writer.append(batch(10, 20))
    writer.close()
    reader.join(20)
    assert not reader.is_alive()
    assert seen == [10, 20]


def test_following_a_dead_writer_ends_and_reports(tmp_path: Path) -> None:
    writer = SampleWriter(tmp_path)
    writer.append(batch(0, 10))
    reports: list[str] = []
    dead = read_batches(tmp_path, follow=True, finished=lambda: True, on_incomplete=reports.append)
    found = list(dead)
    assert [len(each) for each in found] == [10]
    assert len(reports) == 2
    writer.close()


def test_following_a_file_that_grows_byte_by_byte(tmp_path: Path) -> None:
    """However the kernel cuts the writer's pages, a follower sees whole batches only, and no damage."""
    whole, growing = tmp_path / "whole", tmp_path / "growing"
    write(whole, [batch(i * 20, 20) for i in range(4)])
    growing.mkdir()
    done = threading.Event()

    def grow() -> None:
        for name in (GAPS_FILE, SAMPLES_FILE):
            with (growing / name).open("ab", buffering=0) as file:
                data = (whole / name).read_bytes()
                for start in range(0, len(data), 61):
                    file.write(data[start : start + 61])
        done.set()

    writer = threading.Thread(target=grow)
    writer.start()
    found = list(read_batches(growing, follow=True, finished=done.is_set, poll_seconds=0.0005))
    writer.join()
    assert [len(each) for each in found] == [20] * 4
    assert np.array_equal(SampleBatch.concatenate(found).samples, everything(whole).samples)
