"""Where the CUDA kernels run: `cuda`, `to_device` and `where`."""

from attention_lab.gpu.door import cuda, to_device, where

__all__ = ["cuda", "to_device", "where"]
