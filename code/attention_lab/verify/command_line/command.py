"""The command `attention-lab`: verify what is in a file."""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NoReturn

from attention_lab.verify.attention.signature import (
    ABILITIES,
    NAMES,
    check_supports,
)
from attention_lab.verify.command_line.failure_counts import (
    failures_before,
    remember,
)
from attention_lab.verify.command_line.fresh_process import (
    verify_in_fresh_process,
)
from attention_lab.verify.command_line.load import CannotVerify, split_target
from attention_lab.verify.command_line.worker import Request
from attention_lab.verify.hints import with_words
from attention_lab.verify.isolation.isolated import broke_off
from attention_lab.verify.known_mistakes import known_mistakes
from attention_lab.verify.report import SCHEMA, Report

PASSED, FAILED, COULD_NOT_RUN = 0, 1, 2
SECONDS = 20.0
SECONDS_OF_A_MODULE = 30.0
MEMORY_MB = 4096


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0 passed, 1 failed, 2 could not be run.

    Raises
    ------
    SystemExit
        With code 0, after `--help`.
    """
    arguments = [*(sys.argv[1:] if argv is None else argv)]
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # Not every terminal has ✓ and ✗.
            stream.reconfigure(errors="replace")
    try:
        code = _run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read the output stops, as `head` does. Python would complain
        # again when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = COULD_NOT_RUN
    return code


def _run(arguments: list[str]) -> int:
    wants_json = "--json" in arguments
    subject = ""
    try:
        options = _parser().parse_args(arguments)
        subject = getattr(options, "target", "")
        if options.command == "verify":
            _check_together(options)
        run = _show_mistakes if options.command == "mistakes" else _verify
        return run(options)
    except CannotVerify as error:
        text = str(error)
        sentence = text if text.endswith((".", "?")) else f"{text}."
        said = f"Could not be run: {sentence}"
    except KeyboardInterrupt:
        sentence, said = "It was stopped.", "Stopped."
    print(said, file=sys.stderr)
    if wants_json:
        data = {
            "schema": SCHEMA,
            "subject": subject,
            "passed": False,
            "error": sentence,
        }
        print(json.dumps(data, ensure_ascii=False))
    return COULD_NOT_RUN


class _Parser(argparse.ArgumentParser):
    """A parser that raises `CannotVerify` instead of ending the process."""

    def __init__(self, **options: Any) -> None:
        # --json has one spelling, to be seen where the rest is wrong.
        super().__init__(**options, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        raise CannotVerify(message)


def _check_together(options: argparse.Namespace) -> None:
    """Raise `CannotVerify` if options do not go together."""
    if options.module and not (options.embed_dim and options.num_heads):
        raise CannotVerify("--module needs --embed-dim N and --num-heads N")
    if not options.module and (options.embed_dim or options.num_heads):
        raise CannotVerify("--embed-dim and --num-heads go with --module")
    if options.module and options.supports is not None:
        raise CannotVerify("--supports goes with a function, not with --module")
    if options.module and options.embed_dim % options.num_heads:
        raise CannotVerify(
            f"--embed-dim {options.embed_dim} is no multiple of --num-heads "
            f"{options.num_heads}"
        )


def _parser() -> _Parser:
    parser = _Parser(
        prog="attention-lab",
        description="Verify attention code and say what is wrong with it.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    verify = commands.add_parser(
        "verify",
        help="verify a function or a module in a file",
        description="Import FILE.py in a process of its own, with limits, and "
        "verify NAME in it. Exit code: 0 passed; 1 a check failed; 2 could "
        "not be run, or not to the end: wrong arguments, an import error, the "
        "time limit, a crash.",
    )
    verify.add_argument(
        "target",
        metavar="FILE.py:NAME",
        help="a function of (query, key, value, ...); with --module, a class "
        "or an object that is an nn.Module",
    )
    verify.add_argument(
        "--module", action="store_true", help="NAME is an nn.Module"
    )
    verify.add_argument(
        "--embed-dim", type=_positive(int), metavar="N", help="the model width"
    )
    verify.add_argument(
        "--num-heads", type=_positive(int), metavar="N", help="how many heads"
    )
    verify.add_argument(
        "--supports",
        type=_supported,
        metavar="A,B",
        help="what a function is to be asked, if less than its arguments "
        f"say: {', '.join((*NAMES, *ABILITIES))}",
    )
    verify.add_argument(
        "--seconds",
        type=_positive(float),
        metavar="S",
        help="time limit of the import, and of the checks (default: "
        f"{SECONDS:g}; of a module {SECONDS_OF_A_MODULE:g})",
    )
    verify.add_argument(
        "--memory-mb",
        type=_positive(int),
        default=MEMORY_MB,
        metavar="M",
        help="memory limit, on Linux (default: %(default)s)",
    )
    verify.add_argument(
        "--json",
        action="store_true",
        help="print the report as JSON; where there is none, an object with "
        "the key error",
    )
    verify.add_argument(
        "--fresh-hints",
        action="store_true",
        help="forget what failed before: hints start small again",
    )
    mistakes = commands.add_parser(
        "mistakes", help="list the known mistakes, or show one"
    )
    mistakes.add_argument("id", nargs="?", help="the mistake to show")
    return parser


def _positive(kind: type) -> type:
    def read(text: str) -> float:
        number = kind(text)
        if not 0 < number < float("inf"):
            raise ValueError(text)
        return number

    # argparse puts this into its message: "invalid positive int value".
    read.__name__ = f"positive {kind.__name__}"
    return read


def _supported(text: str) -> list[str]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    check_supports(words)
    return words


# argparse puts this into its message.
_supported.__name__ = "list of what is supported"


def _verify(options: argparse.Namespace) -> int:
    default = SECONDS_OF_A_MODULE if options.module else SECONDS
    path, name = split_target(options.target)
    report = verify_in_fresh_process(
        Request(
            path=str(path),
            name=name,
            answers="",
            seconds=options.seconds or default,
            memory_bytes=options.memory_mb << 20,
            is_module=options.module,
            embed_dim=options.embed_dim or 0,
            num_heads=options.num_heads or 0,
            supports=options.supports,
        )
    )
    owner = f"{path}:{name}"
    before = {} if options.fresh_hints else failures_before(owner)
    report = _with_hints(report, before, f"{path.name}:{name}")
    remember(owner, report, afresh=options.fresh_hints)
    print(report.to_json() if options.json else report)
    if not report.checks or broke_off(report):
        return COULD_NOT_RUN
    return PASSED if report.passed else FAILED


def _with_hints(report: Report, before: dict[str, int], subject: str) -> Report:
    checks = [
        with_words(check, before.get(check.name, 0)) for check in report.checks
    ]
    return replace(report, subject=subject, checks=tuple(checks))


def _show_mistakes(options: argparse.Namespace) -> int:
    id = options.id
    cards = known_mistakes()
    if id is None:
        width = max(len(name) for name in cards)
        for name, card in cards.items():
            print(f"{name:{width}}  {card.title}")
        return PASSED
    if id not in cards:
        print(
            f"There is no mistake {id!r}. attention-lab mistakes lists all.",
            file=sys.stderr,
        )
        return COULD_NOT_RUN
    card = cards[id]
    print(card.title)
    for word, text in (
        ("Symptom", card.symptom),
        ("Cause", card.cause),
        ("Seen in", card.source),
        ("Caught by", card.check),
        ("Read", card.link),
    ):
        print(f"  {word}: {text}")
    return PASSED


if __name__ == "__main__":
    sys.exit(main())
