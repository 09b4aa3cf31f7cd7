"""What is checked on a ledger, and its numbers as a table."""

from typing import Any

from attention_lab.figures.picture import Table, Verdict


def verdicts_of(data: dict[str, Any]) -> list[Verdict]:
    """Hold every recording against its formula, and a paper against a count."""
    pairs = [
        (entry, count, dtype["bytes"])
        for setting in data["settings"]
        for row in setting["entries"]
        for entry in row
        for count, dtype in zip(entry["counted"], data["dtypes"], strict=True)
        if count is not None
    ]
    source = f"recorded kernels, seed {data['seed']}"
    verdicts = []
    for name, found in (
        (
            "traffic, measured ÷ formula",
            [
                (sum(count["moved"]), sum(entry["moved"]),
                 count["moved"] == entry["moved"]
                 and count["bytes"] == sum(entry["moved"]) * size)
                for entry, count, size in pairs
            ],
        ),
        (
            "products, measured ÷ formula",
            [
                (count["flops"], entry["flops"],
                 count["flops"] == entry["flops"])
                for entry, count, _ in pairs
            ],
        ),
    ):  # fmt: skip
        right = sum(equal for *_, equal in found)
        worst = max(found, key=lambda x: abs(x[0] / x[1] - 1), default=(0, 1))
        verdicts.append(
            Verdict(
                name,
                bool(found) and right == len(found),
                f"{worst[0] / worst[1]:.4f}" if found else "nothing recorded",
                f"exact; {right} of {len(found)} recordings",
                source,
            )
        )
    sides = [
        (total > bound) == (tile < setting["D"] / 2)
        for setting in data["settings"]
        if setting["L"] is None and not setting["is_causal"]
        for column in range(len(setting["S"]))
        for tile, total, bound in _against_bound(setting, column)
    ]
    verdicts.append(
        Verdict(
            "flash moves more than “stored once” just where TILE_L < D ÷ 2",
            bool(sides) and all(sides),
            f"{sum(sides)} of {len(sides)} entries",
            "all, by formula",
            "gpu.traffic; as many queries as keys",
        )
    )
    counter = data["torch_flops"]
    verdicts.append(
        Verdict(
            "products by torch's own counter",
            counter["torch"] == counter["formula"],
            f"{grouped(counter['torch'])} FLOP",
            f"exactly {grouped(counter['formula'])}",
            "torch.utils.flop_counter",
        )
    )
    paper = data["paper"]
    for row in paper["rows"]:
        off = abs(row["counted"] - row["printed"])
        verdicts.append(
            Verdict(
                f"the printed {row['printed']} GFLOP ({row['name']}) does not "
                "reproduce",
                off > paper["last_digit"] / 2,
                f"counted {row['counted']:.1f}",
                f"printed to {paper['last_digit']}",
                paper["source"],
            )
        )
    return verdicts


def table_of(data: dict[str, Any]) -> Table:
    """Return every entry, recorded or not, one line each."""
    rows = []
    for setting in data["settings"]:
        for kernel, entries in zip(
            setting["kernels"], setting["entries"], strict=True
        ):
            for S, entry in zip(setting["S"], entries, strict=True):
                count = entry["counted"][0]
                moved = "–" if count is None else grouped(sum(count["moved"]))
                rows.append(
                    (
                        setting["name"], kernel, str(S),
                        grouped(entry["flops"]), grouped(sum(entry["moved"])),
                        moved, f"{entry['intensity'][0]:.4f}",
                    )
                )  # fmt: skip
    return Table(
        "Every entry of the ledger",
        ("setting", "kernel", "S", "FLOP", "numbers by formula", "recorded",
         "FLOP per byte, float32"),
        tuple(rows),
    )  # fmt: skip


def totals_of(setting: dict[str, Any], column: int) -> dict[str, int]:
    """Return how many numbers each kernel moves, by formula."""
    return {
        kernel: sum(row[column]["moved"])
        for kernel, row in zip(
            setting["kernels"], setting["entries"], strict=True
        )
    }


def _against_bound(
    setting: dict[str, Any], column: int
) -> list[tuple[int, int, int]]:
    """Return tile, numbers moved and the bound of each flash kernel."""
    totals = totals_of(setting, column)
    return [
        (tile, totals[f"tile {tile}"], totals["stored once"])
        for tile in setting["tiles"]
    ]


def grouped(number: int) -> str:
    """Write a whole number in groups of three digits.

    Examples
    --------
    >>> grouped(152064)
    '152,064'
    """
    return f"{number:,}"
