"""`inferslo`: the same verdicts without pytest, and the tools around them.

Each sub-command lives beside what it does, as `add_arguments(parser)` and `run(arguments) -> exit code`; this module
only finds it. Modules are imported when their command is used.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import warnings
from collections.abc import Sequence

from pytest_inferslo import __version__
from pytest_inferslo.errors import InfersloError, UsageError

_COMMANDS = {
    "judge": ("pytest_inferslo.judgement", "judge a saved run against a policy"),
    "compare": ("pytest_inferslo.comparison", "put saved runs side by side"),
    "policy": ("pytest_inferslo.policies", "check, explain or import policy files"),
    "calibrate": ("pytest_inferslo.loadgen.calibration", "measure what this machine can offer"),
    "worker": ("pytest_inferslo.loadgen.worker", "generate load on this host for a master elsewhere"),
    "simulate": ("pytest_inferslo.backends.simulated.cli", "serve the embedded simulator"),
    "script-server": ("pytest_inferslo.servers.scripted_cli", "serve a script of answers and faults"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Exit codes: 0 pass, 1 fail, 4 usage, 8 inconclusive, 9 invalid, 130 interrupted, 141 when the
    reader of the output left."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(prog="inferslo", description=__doc__.split("\n")[0])
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    wanted = next((word for word in arguments if not word.startswith("-")), None)
    for name, (module, summary) in _COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=summary)
        if name == wanted:
            implementation = importlib.import_module(module)
            implementation.add_arguments(command)
            command.set_defaults(run=implementation.run)
    try:
        parsed = parser.parse_args(arguments)
    except SystemExit as exit_:
        return 4 if exit_.code == 2 else int(exit_.code or 0)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _warned
            code = int(parsed.run(parsed))
        sys.stdout.flush()  # what was printed is told here, not by the interpreter's end
        return code
    except UsageError as error:
        print(f"inferslo {parsed.command}: {error}", file=sys.stderr)
        return 4
    except InfersloError as error:
        print(f"inferslo {parsed.command}: {error}", file=sys.stderr)
        return 9
    except BrokenPipeError:  # the reader of our output left, as `head` does; nothing was concluded
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        return 130


def _warned(message: Warning | str, *place: object, **options: object) -> None:
    """For people: where in this package a warning was given is none of their business."""
    print(f"inferslo: warning: {message}", file=sys.stderr)


if __name__ == "__main__":
    raise SystemExit(main())
