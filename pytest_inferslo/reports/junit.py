"""What a JUnit file carries of a verdict: properties, which CI systems keep and show per test."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytest_inferslo.core.verdict import Verdict
from pytest_inferslo.reports.wording import printable, scope_apart


def junit_properties(verdict: Verdict, record: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(name, value) pairs: the verdict, where it comes from, and one pair per objective and broken guard.

    Names begin with `inferslo.` and the policy, so that several policies on one test stay apart.
    """
    prefix = f"inferslo.{verdict.policy}"
    backend = record.get("backend") or {}
    pairs = [
        (f"{prefix}.verdict", verdict.status.value),
        (f"{prefix}.confidence", f"{verdict.confidence:g}"),
        (f"{prefix}.policy_sha256", verdict.policy_sha256),
        (f"{prefix}.run_id", " ".join(verdict.run_ids)),
        (f"{prefix}.backend", str(backend.get("name"))),
        (f"{prefix}.simulated", str(bool(backend.get("simulated"))).lower()),
    ]
    for finding in verdict.findings:
        scope = f" {apart}" if (apart := scope_apart(finding)) else ""
        left_out = finding.optional and finding.observed is None
        parts = ["left out" if left_out else finding.status.value]
        parts[0] += " (warns only)" if finding.severity == "warn" else ""
        parts += [f"observed {finding.observed_text or 'not measured'}"]
        parts += [f"interval {finding.interval_text}"] if finding.interval_text else []
        parts += [f"limit {finding.limit_text}", f"samples {finding.samples}"]
        parts += [finding.reason] if finding.reason else []
        pairs.append((f"{prefix}.objective.{finding.objective}{scope}", "; ".join(parts)))
    for guard in verdict.guards:
        if not guard.ok:
            value = f"broken; observed {guard.observed_text}; allowed {guard.threshold_text}; {guard.reason}"
            pairs.append((f"{prefix}.guard.{guard.name}", value))
    return [(printable(name), printable(value)) for name, value in pairs]
