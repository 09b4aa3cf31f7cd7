"""The exercises of the book: a check for every answer a reader gives.

Read the modules in this order:

1. `blank`: whether there is an answer yet.
2. `exercise`: `Exercise`, which checks an answer and never raises, and the
   `Feedback` that it gives.
3. `answers`: checks for common kinds of answers: a number, a choice, an array,
   a function.
4. `kernels`: the checks of a kernel; `parsons`: the lines of a kernel to put in
   order, and `lines`, which takes the kernel apart.
5. One module per chapter, with the checks of its exercises:
   ``from attention_lab.exercises import multi_head as exercises``.
"""
