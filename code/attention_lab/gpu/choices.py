"""Resolve variables that may stand for one of several arrays.

``a, b = b, a`` in a loop, or ``tile = a if odd else b``: Numba keeps a
pointer in such a variable. The rest of this package wants to know, for
every access, which memory it touches. So the variable becomes one variable
per array, and a number that says which of them is meant; every access
becomes a choice between accesses, each to an array of its own.

Branches that types rule out, as in ``if x is None``, are left out here too,
as Numba leaves them out.
"""

import ast
import copy

from attention_lab.gpu import ir
from attention_lab.gpu.values import Array, Choice, key_of

CONSUMERS = ("len", "atomic", "is_none")


def resolve_choices(body, variables, parameters, place):
    """Return the statements without variables of several arrays.

    Branches that types rule out are left out.

    Parameters
    ----------
    body : flattened statements, annotated by an `Inference`
    variables : what that knows about each variable, by name
    parameters : names of the kernel's parameters
    place : where they are declared
    """
    resolver = _Resolver(variables)
    first = []
    for name in parameters:
        if name in resolver.keys:
            number = resolver.keys[name].index(
                (name, (False,) * len(variables[name].options[0].axes))
            )
            first += resolver.bound(name, number, ir.name(name, place), place)
    return [*first, *resolver.block(body)]


def which_of(name):
    """Return the variable that says which array another stands for."""
    return f"{name}__which"


def is_array(value):
    """Say whether a value is an array, or one of several."""
    return isinstance(value, (Array, Choice))


class _Resolver:
    """Rewrites statements; see `resolve_choices`.

    `chosen`, where it appears, holds what is already decided: for a
    variable the number of its array.
    """

    def __init__(self, variables):
        self.keys = {
            name: [key_of(option) for option in value.options]
            for name, value in variables.items()
            if isinstance(value, Choice)
        }

    def part(self, name, number):
        """Return the variable that holds a view of one of the arrays."""
        return f"{name}__of{number}"

    def bound(self, name, number, value, place):
        """Return the statements that let a variable stand for an array."""
        return [
            ir.assign(self.part(name, number), value, place),
            ir.assign(which_of(name), ir.constant(number, place), place),
        ]

    def test(self, variable, number):
        """Return the test whether a variable stands for this array."""
        place = variable.place
        which = ir.name(which_of(variable.id), place)
        which.may_be_unset = variable.may_be_unset
        made = ast.Compare(
            left=which,
            ops=[ast.Eq()],
            comparators=[ir.constant(number, place)],
        )
        return ir.placed(made, place)

    # -- statements -----------------------------------------------------

    def block(self, statements):
        """Rewrite a list of statements."""
        made = []
        for old in statements:
            made += self.statement(old)
            if getattr(old, "ends_here", False):
                break
        return made

    def statement(self, node):
        """Rewrite one statement into any number of them."""
        if isinstance(node, ast.Assign):
            return self.assignment(node)
        if isinstance(node, ast.If) and node.decided is not None:
            return self.block(node.body if node.decided else node.orelse)
        made = copy.copy(node)
        for field, value in ast.iter_fields(node):
            if isinstance(value, list):
                setattr(made, field, self.block(value))
            elif isinstance(value, ast.expr):
                setattr(made, field, self.expression(value, {}))
        return [made]

    def assignment(self, node):
        """Rewrite an assignment."""
        (target,), value, place = node.targets, node.value, node.place
        if isinstance(target, ast.Name):
            if not is_array(value.known):
                return [replaced(node, value=self.expression(value, {}))]
            name = target.id

            def bind(array, key, chosen):
                if name not in self.keys:
                    return [ir.assign(name, array, place)]
                number = self.keys[name].index(key)
                return self.bound(name, number, array, place)

            return self.choose_statements(value, {}, bind)

        def store(array, key, chosen):
            index = self.expression(target.slice, chosen)
            made = replaced(target, value=array, slice=index)
            new = self.expression(value, chosen)
            return [replaced(node, targets=[made], value=new)]

        return self.choose_statements(target.value, {}, store)

    def choose_statements(self, array, chosen, make):
        """Return what `make` returns for each array that may be meant."""

        def either(test, yes, no, place):
            made = ast.If(test=test, body=yes, orelse=no)
            return [ir.placed(made, place)]

        return self.choose(array, chosen, make, either)

    # -- expressions ----------------------------------------------------

    def expression(self, node, chosen):
        """Rewrite an expression; the same node where nothing changes."""
        if isinstance(node, ast.IfExp) and node.decided is not None:
            return self.expression(
                node.body if node.decided else node.orelse, chosen
            )
        if isinstance(node, ast.BoolOp):
            node = replaced(node, values=node.kept or node.values[-1:])
        array = consumed(node)
        if array is not None and self.needs_choice(array):
            return self.choose_expressions(node, array, chosen)
        changed = {}
        for field, value in ast.iter_fields(node):
            if isinstance(value, list):
                new = [
                    self.expression(item, chosen)
                    if isinstance(item, ast.expr)
                    else item
                    for item in value
                ]
                if any(a is not b for a, b in zip(new, value, strict=True)):
                    changed[field] = new
            elif isinstance(value, ast.expr):
                new = self.expression(value, chosen)
                if new is not value:
                    changed[field] = new
        return replaced(node, **changed) if changed else node

    def choose_expressions(self, node, array, chosen):
        """Return an access as a choice between accesses."""

        def make(one, key, chosen):
            if isinstance(node, ir.Primitive):
                rest = [self.expression(a, chosen) for a in node.args[1:]]
                return replaced(node, args=[one, *rest])
            if isinstance(node, ast.Attribute):
                return replaced(node, value=one)
            index = self.expression(node.slice, chosen)
            return replaced(node, value=one, slice=index)

        def either(test, yes, no, place):
            made = ast.IfExp(test=test, body=yes, orelse=no)
            return ir.placed(made, place)

        return self.choose(array, chosen, make, either)

    def needs_choice(self, array):
        """Say whether an array expression stands for several arrays."""
        if isinstance(array, ast.Name):
            return array.id in self.keys
        if isinstance(array, ast.Subscript):
            return self.needs_choice(array.value)
        return isinstance(array, ast.IfExp)

    # -- the choice itself ----------------------------------------------

    def choose(self, array, chosen, make, either):
        """Return a choice over all the arrays that an expression may mean.

        Parameters
        ----------
        array : an expression that stands for an array
        chosen : what is decided already
        make : takes one array, its key, and what is decided by then
        either : takes a test, what to do if it is true, what if not
        """
        place = array.place
        if isinstance(array, ast.IfExp):
            if array.decided is not None:
                taken = array.body if array.decided else array.orelse
                return self.choose(taken, chosen, make, either)
            return either(
                self.expression(array.test, chosen),
                self.choose(array.body, chosen, make, either),
                self.choose(array.orelse, chosen, make, either),
                place,
            )
        if isinstance(array, ast.Subscript):

            def inside(base, key, chosen):
                index = self.expression(array.slice, chosen)
                made = replaced(array, value=base, slice=index)
                return make(made, cut_key(key, array.slice), chosen)

            return self.choose(array.value, chosen, inside, either)
        if not isinstance(array, ast.Name) or array.id not in self.keys:
            return make(array, key_of(array.known), chosen)
        name = array.id

        def one(number):
            part = ir.name(self.part(name, number), place)
            part.said = getattr(array, "said", "")
            return make(part, self.keys[name][number], {**chosen, name: number})

        if name in chosen:
            return one(chosen[name])
        last = len(self.keys[name]) - 1
        made = one(last)
        for number in reversed(range(last)):
            test = self.test(array, number)
            made = either(test, one(number), made, place)
        return made


def consumed(node):
    """Return the array that an expression reads from, or None."""
    if isinstance(node, (ast.Subscript, ast.Attribute)):
        array = node.value
    elif isinstance(node, ir.Primitive) and node.op in CONSUMERS:
        array = node.args[0]
    else:
        return None
    return array if is_array(getattr(array, "known", None)) else None


def cut_key(key, index):
    """Return the key of a view after one more subscript."""
    name, fixed = key
    if isinstance(index, ast.Tuple):
        parts = index.elts
    else:
        parts = getattr(getattr(index, "known", None), "items", [index])
    free = [axis for axis, done in enumerate(fixed) if not done]
    fixed = list(fixed)
    for axis, part in zip(free, parts, strict=False):
        fixed[axis] = not isinstance(part, ast.Slice)
    return name, tuple(fixed)


def replaced(node, **fields):
    """Return a copy of a node with some of its fields changed."""
    made = copy.copy(node)
    for name, value in fields.items():
        setattr(made, name, value)
    return made
