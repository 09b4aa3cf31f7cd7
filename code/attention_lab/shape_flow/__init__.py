"""Shape flow: what every step of a torch callable does to axes and elements.

`trace_shapes` runs any torch callable once, as it is, and records each step:
its name, shapes and strides, whether it is a view or a copy (read from the
storage, not from the name), the letters of its axes, and where each element
came from. So a head split can be judged, and not only its shape:

>>> import torch
>>> from attention_lab.shape_flow import trace_shapes
>>> def wrong_split(x):
...     return x.view(1, 3, 4, 2)  # B H L D at once: the shape is right
>>> x = torch.arange(24.0).reshape(1, 4, 6)
>>> flow = trace_shapes(wrong_split, x, letters={"x": "BLE", "H": 3})
>>> flow.contents(1, "BHLD", H=1, L=1)
'head 1 of token 1 holds columns 4…5 of token 1'
>>> flow.contents(1, "BHLD", H=1)
'head 1 holds tokens 1 and 2 mixed: columns 2…5 of token 1, columns 0…3 of \
token 2'
>>> flow.verify(split="b l (h d) -> b h l d", h=3)
Traceback (most recent call last):
    ...
attention_lab.shape_flow.errors.WrongElements: ...

Reading order: `trace` (the way in), `recorder` (what sees the calls), `memory`
(how elements are followed), `rules` (how computing steps treat axes),
`letters`, `origins`, `arrangement` (`verify`) and `passed_over` (what it could
not judge), then `text` and `export`.

What is not seen: steps inside compiled code, inside NumPy, inside the backward
pass, and branches that these inputs did not take. The flow says so.
"""

from attention_lab.shape_flow.arrangement import Found
from attention_lab.shape_flow.errors import CannotFollow, WrongElements
from attention_lab.shape_flow.flow import ShapeFlow
from attention_lab.shape_flow.origins import Origin
from attention_lab.shape_flow.steps import Step, Value
from attention_lab.shape_flow.trace import trace_shapes

__all__ = [
    "CannotFollow",
    "Found",
    "Origin",
    "ShapeFlow",
    "Step",
    "Value",
    "WrongElements",
    "trace_shapes",
]
