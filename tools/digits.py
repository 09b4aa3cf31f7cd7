"""Write the book's digits, code/attention_lab/digits.npz, from scikit-learn.

They lie in the package because importing scikit-learn for them takes a reader's
notebook as long as importing torch. A test holds the file against the source.
"""

from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "code" / "attention_lab" / "digits.npz"


def main() -> None:
    """Write all images, in sixteenths, and what they show."""
    digits = load_digits()
    np.savez_compressed(
        TARGET,
        images=digits.images.astype(np.uint8),
        labels=digits.target.astype(np.uint8),
    )


if __name__ == "__main__":
    main()
