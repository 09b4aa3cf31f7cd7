"""What a verification says while it runs, and what is left if it stops."""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from attention_lab.verify.report import (
    Check,
    Report,
    check_from_dict,
    report_from_json,
)

Message = dict[str, Any]


class Progress:
    """A battery tells it what it starts and what it finished.

    `tell` takes the messages: dicts that JSON can hold. Without it they are
    dropped, so that a battery runs on its own too.
    """

    def __init__(self, tell: Callable[[Message], None] | None = None) -> None:
        self._tell = tell
        self._pid = os.getpid()

    def starts(self, name: str, about: str = "") -> None:
        """Say which check starts, and in a few words what it is about.

        `about` ends up in the sentence that says what was running, such as
        "L = 5, S = 7, is_causal=True". Call it again for every case.
        """
        self._send({"starts": name, "about": about})

    def finished(self, check: Check) -> None:
        """Hand over a check's result; it is safe from what comes later."""
        self._send({"finished": plain_check(check)})

    def _send(self, message: Message) -> None:
        if os.getpid() != self._pid:
            # The code under test copied its process: two of them would go on
            # with the checks. The copy ends here.
            os._exit(0)
        if self._tell is not None:
            self._tell(message)


@dataclass
class Heard:
    """The messages of one verification, put together."""

    checks: list[Check] = field(default_factory=list)
    running: str | None = None
    about: str = ""
    report: Report | None = None
    raised: str | None = None
    ready: bool = False
    unfit: str | None = None

    def hear(self, message: Message) -> None:
        """Take one message in."""
        if "starts" in message:
            self.running, self.about = message["starts"], message["about"]
        elif "finished" in message:
            self.checks.append(check_from_dict(message["finished"]))
            self.running, self.about = None, ""
        elif "report" in message:
            self.report = report_from_json(message["report"])
        elif "raised" in message:
            self.raised = message["raised"]
        elif "ready" in message:
            self.ready = True
        elif "unfit" in message:
            self.unfit = message["unfit"]

    def hear_line(self, line: bytes) -> None:
        """Take one line of JSON in; what is no message is dropped."""
        try:
            self.hear(json.loads(line))
        except (ValueError, TypeError, KeyError, AttributeError):
            # Only code that writes into descriptors that are not its own can
            # cause this. Its end is then reported like a crash.
            return

    @property
    def is_over(self) -> bool:
        """Whether nothing more is to come."""
        return bool(self.report or self.raised or self.unfit)


def plain_check(check: Check) -> dict[str, Any]:
    """Return a check as a dict that JSON can hold."""
    text = Report(subject="", kind="", checks=(check,)).to_json()
    return json.loads(text)["checks"][0]
