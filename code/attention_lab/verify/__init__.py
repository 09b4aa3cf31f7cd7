"""The checks that a reader sees: they speak in sentences and can fail."""

from attention_lab.verify.checks import check_number, check_same_as, check_shape

__all__ = ["check_number", "check_same_as", "check_shape"]
