"""What a verification found: one line per check, for a person or a program."""

import html
import json
import math
from dataclasses import asdict, dataclass, field
from typing import Any

SCHEMA = "verify.v1"


@dataclass(frozen=True)
class Counterexample:
    """The smallest input found on which a check fails.

    `sizes` maps axis letters to sizes; `options` are the other arguments;
    `inputs` are the arrays as nested lists, by argument; `where` names the
    element, such as ``{"token": 2, "channel": 0}``; `got` and `expected` are
    its values.
    """

    sizes: dict[str, int] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    inputs: dict[str, Any] = field(default_factory=dict)
    where: dict[str, int] = field(default_factory=dict)
    got: float | str | None = None
    expected: float | str | None = None

    def __str__(self) -> str:
        sizes = ", ".join(f"{axis} = {n}" for axis, n in self.sizes.items())
        options = [f"{name}={value}" for name, value in self.options.items()]
        return "; ".join(part for part in (sizes, *options) if part)


@dataclass(frozen=True)
class Check:
    """One check: what it found, the likely mistake, a hint, where to read.

    `mistake` is an id of `attention_lab.verify.known_mistakes`, or None where
    nothing known explains the result. `also` names a second mistake that is
    needed to explain it.
    """

    name: str
    passed: bool
    what: str = ""
    counterexample: Counterexample | None = None
    mistake: str | None = None
    also: str | None = None
    likely: str = ""
    hint: str = ""
    link: str | None = None

    @property
    def message(self) -> str:
        """Say what differed, then the likely mistake, then one hint."""
        parts = [self.what]
        if self.likely:
            parts.append(f"Likely: {self.likely}")
        if self.hint:
            parts.append(f"Hint: {self.hint}")
        return " ".join(part for part in parts if part)


@dataclass(frozen=True)
class Report:
    """The result of a verification.

    `subject` is what was verified, `kind` how it was called ("torch",
    "numpy", "module", "kernel"). `not_tested` maps a check's name to the
    reason why it did not run; `notes` are sentences that fail nothing.
    """

    subject: str
    kind: str
    checks: tuple[Check, ...]
    not_tested: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether every check passed; False if none ran."""
        return bool(self.checks) and all(check.passed for check in self.checks)

    @property
    def failures(self) -> tuple[Check, ...]:
        """Return the checks that failed, in the order in which they ran."""
        return tuple(check for check in self.checks if not check.passed)

    @property
    def mistakes(self) -> tuple[str, ...]:
        """Return the ids of the mistakes named, each once."""
        named = [
            name
            for check in self.failures
            for name in (check.mistake, check.also)
            if name
        ]
        return tuple(dict.fromkeys(named))

    def __getitem__(self, name: str) -> Check:
        """Return the check of that name; KeyError lists those that ran."""
        for check in self.checks:
            if check.name == name:
                return check
        ran = ", ".join(check.name for check in self.checks)
        raise KeyError(f"no check {name!r} ran; these did: {ran}")

    def headline(self) -> str:
        """Return the one line that says how it went."""
        if not self.checks:
            return f"{self.subject}: nothing could be tested"
        if self.passed:
            return f"{self.subject}: all {len(self.checks)} checks passed"
        return (
            f"{self.subject}: {len(self.failures)} of {len(self.checks)} "
            "checks failed"
        )

    def _failures_in_order(self) -> list[tuple[Check, bool]]:
        """Pair each failure with whether an earlier one named its mistake."""
        seen: set[tuple[str, str | None]] = set()
        pairs = []
        for check in self.failures:
            named = check.mistake and (check.mistake, check.also)
            pairs.append((check, bool(named) and named in seen))
            if named:
                seen.add(named)
        return pairs

    def __str__(self) -> str:
        lines = [self.headline()]
        for check, explained_above in self._failures_in_order():
            lines.append(f"\n✗ {check.name}: {check.what}")
            if check.counterexample and str(check.counterexample):
                lines.append(f"  Smallest example: {check.counterexample}")
            if explained_above:
                lines.append("  The same mistake explains it.")
                continue
            if check.likely:
                lines.append(f"  Likely: {check.likely}")
            if check.hint:
                lines.append(f"  Hint: {check.hint}")
            if check.link:
                lines.append(f"  Read: {check.link}")
        passed = [check.name for check in self.checks if check.passed]
        if passed:
            lines.append(f"\n✓ {', '.join(passed)}")
        lines += [
            f"– not tested: {name} ({reason})"
            for name, reason in self.not_tested.items()
        ]
        lines += [f"  Note: {note}" for note in self.notes]
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Show the report in a notebook: failures first, then the rest."""
        state = "passed" if self.passed else "failed"
        parts = [
            f'<section class="verify-report verify-{state}">',
            f"<p><strong>{html.escape(self.headline())}</strong></p>",
            *(_failure_as_html(*pair) for pair in self._failures_in_order()),
        ]
        passed = [check.name for check in self.checks if check.passed]
        rest = [f"✓ {', '.join(passed)}"] if passed else []
        rest += [
            f"– not tested: {name} ({reason})"
            for name, reason in self.not_tested.items()
        ]
        rest += [f"Note: {note}" for note in self.notes]
        if rest:
            items = "".join(f"<li>{html.escape(line)}</li>" for line in rest)
            parts.append(f'<ul class="verify-rest">{items}</ul>')
        return "\n".join([*parts, "</section>"])

    def to_json(self) -> str:
        """Return the report as JSON of schema `verify.v1`.

        NaN and the infinities are the strings "nan", "inf" and "-inf".
        """
        data = {
            "schema": SCHEMA,
            "subject": self.subject,
            "kind": self.kind,
            "passed": self.passed,
            "checks": [
                {**asdict(check), "message": check.message}
                for check in self.checks
            ],
            "not_tested": self.not_tested,
            "notes": list(self.notes),
        }
        return json.dumps(_plain(data), ensure_ascii=False, allow_nan=False)


def report_from_json(text: str) -> Report:
    """Read a report that `Report.to_json` wrote.

    Raises
    ------
    ValueError
        If the text is of another schema.
    """
    data = json.loads(text)
    if data.get("schema") != SCHEMA:
        raise ValueError(
            f"a report of schema {SCHEMA} is needed, not {data.get('schema')!r}"
        )
    return Report(
        subject=data["subject"],
        kind=data["kind"],
        checks=tuple(check_from_dict(check) for check in data["checks"]),
        not_tested=data["not_tested"],
        notes=tuple(data["notes"]),
    )


def check_from_dict(data: dict[str, Any]) -> Check:
    """Read one check of a report's JSON."""
    data = {name: value for name, value in data.items() if name != "message"}
    example = data.pop("counterexample")
    return Check(
        **data, counterexample=Counterexample(**example) if example else None
    )


def _plain(value: Any) -> Any:
    """Turn a value into what JSON can hold."""
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    return str(value)


def _failure_as_html(check: Check, explained_above: bool) -> str:
    what = html.escape(check.what)
    rows = [f"<strong>✗ {html.escape(check.name)}</strong>: {what}"]
    if check.counterexample and str(check.counterexample):
        rows.append(
            f"Smallest example: {html.escape(str(check.counterexample))}"
        )
    if explained_above:
        rows.append("The same mistake explains it.")
        return f"<p>{'<br/>'.join(rows)}</p>"
    if check.likely:
        rows.append(f"Likely: {html.escape(check.likely)}")
    if check.hint:
        rows.append(f"Hint: {html.escape(check.hint)}")
    if check.link:
        link = html.escape(check.link, quote=True)
        rows.append(f'<a href="{link}">Read more</a>')
    return f"<p>{'<br/>'.join(rows)}</p>"
