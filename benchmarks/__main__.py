"""python -m benchmarks: what can be done beside a run, and with records that are there already.

    report DIR [--beside DIR]   build report.md, index.html and figures/ in DIR
    readme DIR [--check]        write README.md's results table, or only say whether it is current
    sanitize DIR                run compute-sanitizer over every kernel, write sanitizer.md in DIR

Exit codes: 0 done, 1 unusable input (or, with --check, a table that is not current).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__.split("\n")[0]
    )
    commands = parser.add_subparsers(dest="command", required=True)

    report = commands.add_parser("report", help="build the report of a recorded run")
    report.add_argument("directory", type=Path, help="a folder that holds records.jsonl")
    report.add_argument("--beside", type=Path, help="another run, shown in sections of its own")

    readme = commands.add_parser("readme", help="write README.md's results table from a run")
    readme.add_argument("directory", type=Path, help="a folder that holds records.jsonl")
    readme.add_argument("--check", action="store_true", help="change nothing, only compare")

    sanitize = commands.add_parser("sanitize", help="compute-sanitizer over every kernel")
    sanitize.add_argument("directory", type=Path, help="a folder, for what it finds")

    chosen = parser.parse_args(arguments)
    try:
        if chosen.command == "report":
            return _report(chosen.directory, chosen.beside)
        if chosen.command == "sanitize":
            from benchmarks import sanitize as watch

            return watch.main(chosen.directory)
        return _readme(chosen.directory, chosen.check)
    except (ValueError, OSError) as error:  # RecordError is a ValueError
        print(error, file=sys.stderr)
        return 1


def _report(directory: Path, beside: Path | None) -> int:
    from benchmarks.report.build import build

    print(build(directory, beside))
    return 0


def _readme(directory: Path, check: bool) -> int:
    from benchmarks.report import readme

    if not check:
        readme.update(directory)
        return 0
    if readme.is_current(directory):
        return 0
    print(
        f"README.md's table differs from {directory}: python -m benchmarks readme {directory}",
        file=sys.stderr,
    )
    return 1


if __name__ == "__main__":
    sys.exit(main())
