"""The steps of the book, one module per chapter.

Every module has the same parts in the same order: the question, the readable
PyTorch version, the CUDA kernels, the functions that launch them.
"""
