"""What the benchmarks measured, for the pages that show it.

The readings lie in `attention_lab/results`, so that an installed book has them
too; `benchmarks/results` leads there. Each names its machine and versions.
"""

import json
from importlib.resources import files
from typing import Any


def read_benchmark(name: str) -> dict[str, Any]:
    """Return the committed readings of a benchmark.

    Parameters
    ----------
    name : of its script in `benchmarks/`, such as "memory".

    Raises
    ------
    ValueError
        If it has no committed readings; names those that have.

    Examples
    --------
    >>> read_benchmark("recorder")["cases"][0]["case"]
    'tiled scores'
    """
    folder = files("attention_lab") / "results"
    path = folder / f"{name}.json"
    if not path.is_file():
        known = sorted(
            entry.name.removesuffix(".json") for entry in folder.iterdir()
        )
        raise ValueError(
            f"there are no readings of {name!r}; there are {', '.join(known)}"
        )
    return json.loads(path.read_text(encoding="utf-8"))
