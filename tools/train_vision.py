"""Train the book's small vision model on three seeds and ship the first.

    python tools/train_vision.py          writes steps/vision.npz
    python tools/train_vision.py --check  trains, compares, writes nothing

Models whose heads are split or merged wrongly are trained on the same seeds;
their accuracies are kept beside the right ones. About 20 s per model.

Exit 1 if the mean accuracy on the held-out digits is below 95 %, or, with
--check, if the shipped weights are not those that training gives here. Another
processor may round otherwise; then the accuracies are the ones to compare.
"""

import platform
import sys
import time
from statistics import mean

import numpy as np
import sklearn
import torch

from attention_lab.steps import vision
from attention_lab.steps.vision_mistakes import train_with_mistakes

SEEDS = (0, 1, 2)
LEAST = 0.95


def main(arguments: list[str]) -> int:
    """Train, print a line per seed, write or compare."""
    if unknown := set(arguments) - {"--check"}:
        print(f"unknown: {' '.join(sorted(unknown))}; there is only --check")
        return 2
    models, accuracies = [], []
    for seed in SEEDS:
        start = time.perf_counter()
        models.append(vision.train(seed))
        accuracies.append(vision.accuracy(models[-1]))
        seconds = time.perf_counter() - start
        print(f"seed {seed}: {accuracies[-1]:.4f} held out, {seconds:.0f} s")
    print(f"mean {mean(accuracies):.4f}, at least {LEAST} is needed")
    if not mean(accuracies) >= LEAST:
        return 1
    mistakes = train_with_mistakes(SEEDS)
    for name, found in mistakes.items():
        each = ", ".join(f"{accuracy:.4f}" for accuracy in found)
        print(f"{name}: {each}; mean {mean(found):.4f}")
    if "--check" in arguments:
        return _compare(models[0], {"right": accuracies, **mistakes})
    vision.save_checkpoint(
        models[0],
        {
            "seed": SEEDS[0],
            "epochs": vision.EPOCHS,
            "accuracy": accuracies[0],
            "accuracy_by_seed": accuracies,
            "accuracy_of_mistakes": mistakes,
            "data": "scikit-learn's digits (Alpaydin & Kaynak 1998, UCI)",
            "torch": torch.__version__,
            "numpy": np.__version__,
            "scikit-learn": sklearn.__version__,
            "machine": platform.machine(),
        },
    )
    print(f"wrote {vision.CHECKPOINT.name}")
    return 0


def _compare(model: vision.TinyViT, accuracies: dict[str, list[float]]) -> int:
    """Return 0 if weights and accuracies shipped are those just trained."""
    shipped, provenance = vision.load_checkpoint()
    theirs = shipped.state_dict()
    off = max(
        (theirs[name] - x).abs().max().item()
        for name, x in model.state_dict().items()
    )
    print(f"the shipped weights differ by at most {off:.1e}")
    stated = {
        "right": provenance["accuracy_by_seed"],
        **provenance["accuracy_of_mistakes"],
    }
    print(f"the shipped accuracies are these: {stated == accuracies}")
    return 0 if off == 0 and stated == accuracies else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
