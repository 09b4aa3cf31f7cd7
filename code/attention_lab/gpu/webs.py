"""Give each meaning of a variable a name, and so a type, of its own.

A kernel may say ``x = 0`` and, later, ``x = values[i]``. Numba compiles the
two as two variables when no use can see both. This module does the same:
it follows which assignments reach which uses, joins the assignments that
share a use, and renames the groups (in compiler books: webs).
"""

import ast

from attention_lab.gpu import ir
from attention_lab.gpu.errors import UnsupportedConstruct

UNSET = -1  # stands for "no assignment has run"
NEVER = frozenset((UNSET,))


class WebFinder:
    """Follows the assignments of one flattened kernel.

    Parameters
    ----------
    parameters : names that have a value before the first statement
    """

    def __init__(self, parameters):
        self.parameters = parameters
        self.parent = {}
        self.loads = {}
        self.stores = {}
        self.loops = []

    # -- groups of assignments ------------------------------------------

    def root(self, definition):
        """Return the representative of an assignment's group."""
        while self.parent[definition] != definition:
            definition = self.parent[definition]
        return definition

    def unite(self, definitions):
        """Put assignments that share a use into one group."""
        first, *rest = sorted(definitions)
        for other in rest:
            a, b = sorted((self.root(first), self.root(other)))
            self.parent[b] = a

    # -- following the statements ---------------------------------------

    def define(self, node, state):
        """Let the assignment `node` hide all earlier ones."""
        key = self.stores.setdefault(id(node), (node, len(self.parent)))[1]
        self.parent.setdefault(key, key)
        state[node.id] = frozenset((key,))

    def use(self, expression, state):
        """Note which assignments every variable in an expression may see."""
        for node in ast.walk(expression):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                if node.id not in state:
                    # Numba refuses that too.
                    raise UnsupportedConstruct(
                        f"`{node.id}` is used before it has a value",
                        node.place,
                    )
                seen = self.loads.setdefault(id(node), (node, set()))[1]
                seen |= state[node.id]

    def block(self, statements, state):
        """Follow statements; return the state after, or None if never."""
        for statement in statements:
            if state is None:
                return None
            state = self.statement(statement, state)
        return state

    def statement(self, node, state):
        """Follow one statement."""
        if isinstance(node, ast.Assign):
            target = node.targets[0]
            self.use(node.value, state)
            if isinstance(target, ast.Name):
                state = dict(state)
                self.define(target, state)
            else:
                self.use(target, state)
            return state
        if isinstance(node, ast.Expr):
            self.use(node.value, state)
            return None if ir.stops(node) else state
        if isinstance(node, ast.If):
            self.use(node.test, state)
            return merged(
                self.block(node.body, state), self.block(node.orelse, state)
            )
        if isinstance(node, (ast.For, ast.While)):
            return self.loop(node, state)
        if isinstance(node, ir.Once):
            self.loops.append(([], []))
            after = self.block(node.body, state)
            return merged(after, *self.loops.pop()[0])
        if isinstance(node, ast.Return):
            return None
        breaks, continues = self.loops[-1]
        (breaks if isinstance(node, ast.Break) else continues).append(state)
        return None

    def loop(self, node, state):
        """Follow a loop until nothing new reaches its start."""
        if isinstance(node, ast.For):
            self.use(node.iter, state)
        while True:
            self.loops.append(([], []))
            inside = dict(state)
            if isinstance(node, ast.For):
                self.define(node.target, inside)
            else:
                self.use(node.test, inside)
            end = self.block(node.body, inside)
            breaks, continues = self.loops.pop()
            grown = merged(state, end, *continues)
            if grown == state:
                break
            state = grown
        forever = (
            isinstance(node, ast.While)
            and isinstance(node.test, ast.Constant)
            and node.test.value
        )
        after = None if forever else self.block(node.orelse, state)
        return merged(after, *breaks)


def merged(*states):
    """Return what may be true when any of the states may hold."""
    states = [state for state in states if state is not None]
    if not states:
        return None
    made = dict(states[0])
    for state in states[1:]:
        for name in made.keys() - state.keys():
            made[name] |= NEVER
        for name, definitions in state.items():
            known = made.get(name, NEVER)
            if known is not definitions:
                made[name] = known | definitions
    return made


def split_variables(body, parameters):
    """Rename the variables of a flattened kernel, one name per web.

    Parameters
    ----------
    body : statements of `ir`, changed in place; a use that an assignment
        may not have reached gets the attribute ``may_be_unset``
    parameters : names of the kernel's parameters, which keep their names

    Returns
    -------
    {new name: old name}, and the new names that some use may find unset.
    """
    finder = WebFinder(parameters)
    state = {}
    for number, parameter in enumerate(parameters):
        finder.parent[number] = number
        state[parameter] = frozenset((number,))
    finder.block(body, state)
    for node, definitions in finder.loads.values():
        node.may_be_unset = UNSET in definitions
        definitions.discard(UNSET)
        finder.unite(definitions)
    names = dict(enumerate(parameters))
    taken = set(parameters)
    for node, key in finder.stores.values():
        root = finder.root(key)
        if root not in names:
            name, count = node.id, 1
            while name in taken:
                count += 1
                name = f"{node.id}_{count}"
            taken.add(name)
            names[root] = name
    renamed = [
        (node, names[finder.root(key)]) for node, key in finder.stores.values()
    ]
    for node, definitions in finder.loads.values():
        renamed.append((node, names[finder.root(min(definitions))]))
    old_names, unset = {}, set()
    for node, name in renamed:
        old_names[name] = node.id
        node.id = name
        if getattr(node, "may_be_unset", False):
            unset.add(name)
    return old_names, unset
