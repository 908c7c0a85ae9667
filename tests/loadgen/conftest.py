"""One load generator, with two workers, for all tests of this folder that offer a load."""

from __future__ import annotations

import itertools
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_inferslo.core.arrivals import constant
from pytest_inferslo.core.endpoint import Endpoint
from pytest_inferslo.core.prompts import synthetic
from pytest_inferslo.core.samples import Outcome, Rows
from pytest_inferslo.core.scenario import Scenario
from pytest_inferslo.loadgen.offer import LoadGenerator, LoadOrder, LoadResult
from pytest_inferslo.storage.samples import read_batches


@dataclass
class Offered:
    """What became of a load: the result, and all samples by index."""

    result: LoadResult
    samples: Rows

    @property
    def outcomes(self) -> dict[str, int]:
        return dict(Counter(Outcome(code).name for code in self.samples["outcome"].tolist()))


class Load:
    """Offers short loads; whatever a test says, it also checks that every request is recorded once."""

    def __init__(self, generator: LoadGenerator, directory: Path) -> None:
        self.generator = generator
        self._directory = directory
        self._numbers = itertools.count()

    def order(self, *urls: str | Endpoint, names: tuple[str, ...] = (), **fields: Any) -> LoadOrder:
        given = {
            "arrivals": constant("50/s"),
            "prompts": synthetic(16, 4),
            "duration": 0.4,
            "drain": "5s",
            **fields,
        }
        endpoints = [
            url if isinstance(url, Endpoint) else Endpoint(url, "m", f"e{i}") for i, url in enumerate(urls)
        ]
        run = self._directory / f"run{next(self._numbers)}"
        scenario = Scenario(**given)
        return LoadOrder(scenario.to_dict(), [e.to_dict() for e in endpoints], list(names), 7, str(run))

    def __call__(self, *urls: str | Endpoint, names: tuple[str, ...] = (), **fields: Any) -> Offered:
        order = self.order(*urls, names=names, **fields)
        return self.read(order, self.generator.offer(order))

    def read(self, order: LoadOrder, result: LoadResult) -> Offered:
        samples = np.sort(
            np.concatenate([batch.samples for batch in read_batches(Path(order.run_directory))]),
            order="index",
        )
        counts = result.counts
        assert result.errors == []
        assert len(set(samples["index"].tolist())) == len(samples) == counts["issued"] == counts["intended"]
        assert counts["issued"] == sum(counts[k] for k in ("succeeded", "failed", "unfinished", "never_sent"))
        return Offered(result, samples)


@pytest.fixture(scope="session")
def load(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Load]:
    directory = tmp_path_factory.mktemp("load")
    with LoadGenerator(directory / "logs", workers=2) as generator:
        with (
            pytest.MonkeyPatch.context() as patch
        ):  # for the workers' start alone: other tests follow in this process
            # case 40: a proxy of the environment is never used
            for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY"):
                patch.setenv(name, "http://127.0.0.1:9")
            patch.setenv("INFERSLO_TEST_KEY", "sesame")
            generator.wait_until_ready()
        yield Load(generator, directory)


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate")
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days",
         "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", str(path), "-out",
         f"{path}.crt"],
        check=True, capture_output=True,
    )  # fmt: skip
    path.write_text(path.read_text() + Path(f"{path}.crt").read_text())
    return path
