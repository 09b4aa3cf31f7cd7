"""Which names belong to a function while its body is put into a kernel."""

import ast

from attention_lab.gpu import ir
from attention_lab.gpu.errors import UnsupportedConstruct
from attention_lab.gpu.kernel_source import Missing


class Frame:
    """One function body being flattened: its names, and how it returns.

    Parameters
    ----------
    source : the `KernelSource` of the outermost function around it
    definition : its ``def`` statement
    outer : the frame it was defined in, for a function inside a kernel
    number : distinguishes two calls of one function; 0 for a kernel
    """

    def __init__(self, source, definition, outer=None, number=0):
        self.source = source
        self.definition = definition
        self.outer = outer
        self.number = number
        arguments = definition.args
        self.parameters = {
            a.arg for a in (*arguments.posonlyargs, *arguments.args)
        }
        self.own = own_names(definition)
        self.functions = {}
        self.labels = {}
        self.loops = 0
        self.returns_at_end = False
        self.leaves_loop = False
        if number:
            self.result = f"{definition.name}_{number}_result"
            self.done = f"{definition.name}_{number}_done"
        else:
            self.result = self.done = None

    def variable(self, name):
        """Return what a variable of this function is called in the kernel."""
        if not self.number:
            return name
        inside = f"{self.definition.name}_{self.number}_{name}"
        self.labels[inside] = name
        return inside

    def only_value(self, name):
        """Return the expression that a variable is set to, if it is one."""
        found = []
        pending = list(self.definition.body)
        if name in self.parameters or name in self.functions:
            return None
        while pending:
            node = pending.pop()
            if isinstance(node, ast.Assign):
                (*_, target) = node.targets
                if isinstance(target, ast.Name) and target.id == name:
                    found.append(node.value)
                    continue
            if isinstance(node, (ast.FunctionDef, ast.Lambda)):
                continue
            is_it = isinstance(node, ast.Name) and node.id == name
            if is_it and isinstance(node.ctx, ast.Store):
                return None
            pending.extend(ast.iter_child_nodes(node))
        return found[0] if len(found) == 1 else None

    def resolve(self, name, place):
        """Return the node that a name stands for here."""
        if name in self.functions:
            return ir.constant(self.functions[name], place)
        if name in self.own:
            made = ir.name(self.variable(name), place)
            made.said = name
            return made
        if self.outer is not None:
            return self.outer.resolve(name, place)
        value = self.source.lookup(name)
        if value is Missing:
            raise UnsupportedConstruct(
                f"the name `{name}` is not defined", place
            )
        return ir.constant(value, place)


def own_names(definition):
    """Return the names that a function assigns to, and its parameters."""
    arguments = definition.args
    names = {a.arg for a in (*arguments.posonlyargs, *arguments.args)}
    if arguments.vararg:
        names.add(arguments.vararg.arg)
    pending = list(definition.body)
    while pending:
        node = pending.pop()
        if isinstance(node, (ast.Global, ast.Nonlocal)):
            raise UnsupportedConstruct(
                "`global` and `nonlocal` in a kernel", node.place
            )
        if isinstance(node, (ast.FunctionDef, ast.Lambda)):
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        pending.extend(ast.iter_child_nodes(node))
    return names


def count_returns(definition):
    """Count the ``return`` statements, nested functions aside."""
    count = 0
    pending = list(definition.body)
    while pending:
        node = pending.pop()
        if isinstance(node, (ast.FunctionDef, ast.Lambda)):
            continue
        count += isinstance(node, ast.Return)
        pending.extend(ast.iter_child_nodes(node))
    return count


def contains_return(node):
    """Say whether a ``return`` is inside, nested functions aside."""
    return count_returns(node) > 0
