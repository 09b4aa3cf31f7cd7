"""The flow as plain data: schema `shape_flow.v1`.

    {"schema": "shape_flow.v1",
     "title": name of the callable,
     "problem": "" or why nothing could be followed,
     "sizes": {letter: size},
     "inputs": [value …], "steps": [step …], "outputs": [value name …],
     "roots": [root …], "notes": [text …],
     "verified": [{"step": number or null (not judged), "pattern", "root",
                   "elements": how many were compared, "text"} …],
     "failures": [{"step", "pattern", "share": of misplaced elements,
                   "element": index of one, "text"} …]}

    value: {"name", "step": number or null, "shape", "strides" (in numbers),
            "offset", "dtype", "letters": one per axis, "?" where unknown,
            "why": {axis: reason of a "?"},
            "memory": "input" | "constant" | "view" | "copy" | "new" |
                      "in place" | "same" | "?", "of": whose memory a view is,
            "codes": flat list of element codes, or null where they are too
                     many or not followed, "line": the same, looking through
                     steps that keep every element in its place,
            "reason": "" or why it is not followed}
    step:  {"number", "name", "call", "kind": "moves" | "computes" | "opaque",
            "inputs": [value name …], "outputs": [value …],
            "source": {"file", "line", "text"} or null, "notes"}
    root:  {"name", "kind": "input" | "constant" | "computed" | "opaque",
            "step", "shape", "offset", "letters"}

An element code c belongs to the root with offset ≤ c < offset + size, at flat
place c − offset; −1 is a number that was written in, −2 one that is unknown.
Only the file's name is exported, never its folder.
"""

import json
from pathlib import Path
from typing import Any

from attention_lab.shape_flow.steps import Step, Value

SCHEMA = "shape_flow.v1"
#: Larger tensors are exported without their codes.
MOST_CODES = 4096


def to_dict(flow: Any) -> dict[str, Any]:
    """Return the flow as described above."""
    return {
        "schema": SCHEMA,
        "title": flow.title,
        "problem": flow.problem,
        "sizes": dict(sorted(flow.sizes.items())),
        "inputs": [_value(v) for v in flow.inputs],
        "steps": [_step(s) for s in flow.steps],
        "outputs": [v.name for v in flow.outputs],
        "roots": [
            {
                "name": root.name,
                "kind": root.kind,
                "step": root.step,
                "shape": list(root.shape),
                "offset": root.offset,
                "letters": list(root.letters),
            }
            for root in flow.roots
        ],
        "notes": list(flow.notes),
        "verified": [
            {
                "step": found.step,
                "pattern": found.pattern,
                "root": found.root,
                "elements": found.elements,
                "text": found.sentence,
            }
            for found in flow.verified
        ],
        "failures": [
            {
                "step": error.step,
                "pattern": error.pattern,
                "share": error.share,
                "element": list(error.element),
                "text": str(error),
            }
            for error in flow.failures
        ],
    }


def to_json(flow: Any, indent: int | None = None) -> str:
    """Return the flow as JSON text."""
    separators = (",", ":") if indent is None else None
    return json.dumps(
        to_dict(flow), ensure_ascii=False, indent=indent, separators=separators
    )


def _value(value: Value) -> dict[str, Any]:
    small = value.codes is not None and value.codes.size <= MOST_CODES
    return {
        "name": value.name,
        "step": value.step,
        "shape": list(value.shape),
        "strides": list(value.strides),
        "offset": value.offset,
        "dtype": value.dtype,
        "letters": list(value.letters),
        "why": {str(axis): why for axis, why in value.why.items()},
        "memory": value.memory,
        "of": value.of,
        "codes": value.codes.reshape(-1).tolist() if small else None,
        "line": value.line.reshape(-1).tolist() if small else None,
        "reason": value.reason,
    }


def _step(step: Step) -> dict[str, Any]:
    source = step.source
    return {
        "number": step.number,
        "name": step.name,
        "call": step.call,
        "kind": step.kind,
        "inputs": [v.name for v in step.inputs],
        "outputs": [_value(v) for v in step.outputs],
        "source": source
        and {
            "file": Path(source.file).name,
            "line": source.number,
            "text": source.text,
        },
        "notes": list(step.notes),
    }
