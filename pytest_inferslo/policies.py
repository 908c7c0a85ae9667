"""Policy files: where they are looked for, and the command `inferslo policy`."""

from __future__ import annotations

import argparse
import hashlib
import sys
import textwrap
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from pytest_inferslo.core.metrics import METRICS
from pytest_inferslo.core.openslo import translate
from pytest_inferslo.core.policy import Policy, lacking, misnamed_backends
from pytest_inferslo.core.policy_parser import parse_policy
from pytest_inferslo.core.units import QuantityError, nearest, parse_rate
from pytest_inferslo.errors import PolicyError, Problem
from pytest_inferslo.yaml_documents import read_document, read_documents

DIRECTORY = "slo_policies"
SUFFIXES = (".yaml", ".yml")
_LARGEST = 1 << 20


def load_policy(name: str | Path, *, rootdir: Path | None = None, near: Path | None = None) -> Policy:
    """The policy of a path, or of a name in a folder `slo_policies`.

    A name (without .yaml, or with it) is looked for as a path from the working directory and from `near`,
    then in `slo_policies/` of `near` and its parents up to `rootdir`, and of `rootdir`. Raises PolicyError
    with every fault.
    """
    return _load(str(name), _folders(rootdir or Path.cwd(), near), ())


def _load(name: str, folders: Sequence[Path], opened: tuple[Path, ...]) -> Policy:
    path = _find(name, folders).resolve()
    shown = _shown(path)
    if path in opened:
        chain = " -> ".join(_shown(one) for one in (*opened, path))
        raise PolicyError([Problem(shown, 1, 1, f"extends itself: {chain}")])
    data = _read(path, shown)
    document = read_document(data, shown)
    return parse_policy(
        document,
        shown,
        hashlib.sha256(data).hexdigest(),
        lambda parent: _load(parent, (path.parent, *folders), (*opened, path)),
    )


def _folders(rootdir: Path, near: Path | None) -> list[Path]:
    folders = [Path.cwd()]
    here = near.resolve() if near is not None else None
    while here is not None:
        folders += [here, here / DIRECTORY]
        here = here.parent if here != rootdir.resolve() and here != here.parent else None
    return list(dict.fromkeys([*folders, rootdir / DIRECTORY, Path.cwd() / DIRECTORY]))


def _find(name: str, folders: Sequence[Path]) -> Path:
    names = [name] if name.endswith(SUFFIXES) else [name, *(name + suffix for suffix in SUFFIXES)]
    for folder in folders:
        for candidate in names:
            path = folder / candidate
            if path.is_file():
                return path
    for path in (folder / name for folder in folders):
        if path.is_dir():
            inside = ", ".join(each.stem for each in _policies_in(path)) or "it holds none"
            raise PolicyError([Problem(name, 0, 0, f"is a folder: name one policy in it ({inside})")])
    known = sorted({path.stem for folder in folders for path in _files(folder)})
    hint = nearest(Path(name).stem, known)
    looked = ", ".join(dict.fromkeys(_shown(folder) for folder in folders if folder.name == DIRECTORY))
    raise PolicyError([Problem(name, 0, 0, f"there is no such policy{hint}; looked here and in {looked}")])


def _files(folder: Path) -> list[Path]:
    return _policies_in(folder) if folder.name == DIRECTORY and folder.is_dir() else []


def _policies_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix in SUFFIXES)


def _shown(path: Path) -> str:
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def _read(path: Path, shown: str) -> bytes:
    try:
        if path.stat().st_size > _LARGEST:
            raise PolicyError([Problem(shown, 0, 0, "is larger than 1 MiB: that is no policy")])
        return path.read_bytes()
    except OSError as error:
        raise PolicyError([Problem(shown, 0, 0, f"cannot be read: {error.strerror}")]) from None


_FILES = "a policy file, or a folder with several"


def _rate(text: str) -> float:
    """Requests per second; argparse shows what is wrong with `text`."""
    try:
        rate = parse_rate(text)
    except QuantityError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if not rate:
        raise argparse.ArgumentTypeError(f"{text!r}: at no requests a second nothing is ever proven")
    return rate


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    check = actions.add_parser(
        "check", help="say what is wrong with policy files; exit code 4 if anything is"
    )
    check.add_argument("files", nargs="+", metavar="FILE", help=_FILES)
    explain = actions.add_parser("explain", help="say a policy in plain words, and what it takes to prove it")
    explain.add_argument("files", nargs="+", metavar="FILE", help=_FILES)
    explain.add_argument("--rate", type=_rate, metavar="RATE", help="requests per second, like 40/s")
    openslo = actions.add_parser("import-openslo", help="turn OpenSLO v1 files into policies, on stdout")
    openslo.add_argument("files", nargs="+", metavar="FILE")
    openslo.add_argument("--metric", choices=sorted(METRICS), help="the metric of SLOs that do not name one")
    openslo.add_argument("--unit", help="the unit of their values, like ms")
    actions.add_parser("schema", help="print the JSON Schema of policy files, for editors")


def _wrapped(line: str) -> str:
    return textwrap.fill(line, 80, subsequent_indent="  ", break_on_hyphens=False, break_long_words=False)


def run(arguments: argparse.Namespace) -> int:
    """Exit code 0, or 4 when a file cannot be used."""
    match arguments.action:
        case "check":
            return _check(arguments.files)
        case "explain":
            from pytest_inferslo.core.explain import explained  # needs scipy, which collecting tests does not

            for number, file in enumerate(_expanded(arguments.files)):
                if number:
                    print()
                for line in explained(load_policy(file), arguments.rate):
                    print(_wrapped(line) if line.startswith("  ") else line)
        case "import-openslo":
            return _import(arguments)
        case _:
            print(
                resources.files("pytest_inferslo").joinpath("schemas/policy.schema.json").read_text(), end=""
            )
    return 0


def _expanded(names: Sequence[str]) -> list[str]:
    """Each folder as the policies in it. Raises PolicyError for one without any."""
    found: list[str] = []
    for name in names:
        inside = [str(path) for path in _policies_in(Path(name))] if Path(name).is_dir() else [name]
        if not inside:
            raise PolicyError([Problem(name, 0, 0, "holds no policy: no file in it ends with .yaml or .yml")])
        found += inside
    return found


def _check(files: Sequence[str]) -> int:
    from pytest_inferslo.backends import shipped

    faulty = False
    for file in _expanded(files):
        try:
            policy = load_policy(file)
        except PolicyError as error:
            faulty = True
            print(error, file=sys.stderr)
        else:
            count = len(policy.objectives)
            noun = "objective" if count == 1 else "objectives"
            print(f"{file}: {policy.name}: {count} {noun} at {100 * policy.confidence:.6g} % confidence")
            doubts = misnamed_backends(policy, shipped())  # a name of another package's may be meant
            for objective in policy.objectives:  # a policy that extends this one may bring it
                if missing := lacking(policy, objective):
                    doubts.append(f"{objective.source}: {objective.text}: {missing}")
            for doubt in doubts:
                print(f"note: {doubt}", file=sys.stderr)
    return 4 if faulty else 0


def _import(arguments: argparse.Namespace) -> int:
    """Policies on stdout, what OpenSLO says and a policy cannot on stderr; 4 when nothing came of it."""
    files = {file: read_documents(_read(Path(file), file), file) for file in arguments.files}
    found = translate(files, arguments.metric, arguments.unit)
    print("---\n".join(found.policies), end="")
    for problem in found.left_out:
        print(problem, file=sys.stderr)
    return 0 if found.policies else 4
