"""Who imports whom in the package, read from the source: top level, inside functions, for types."""

import ast
from collections import defaultdict
from pathlib import Path


def modules(root):
    """By dotted name, the path of each module of a package and whether it is a package's face."""
    found = {}
    for path in sorted(Path(root).rglob("*.py")):
        parts = [Path(root).name, *path.relative_to(root).with_suffix("").parts]
        face = parts[-1] == "__init__"
        found[".".join(parts[:-1] if face else parts)] = (path, face)
    return found


def arrows(root):
    """Pairs of modules of which the first imports the second, each with its line."""
    known = modules(root)
    for name, (path, face) in known.items():
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.ImportFrom) or not node.level:
                continue
            up = name.split(".")[: None if face else -1]
            up = up[: len(up) - node.level + 1]
            base = ".".join([*up, *([node.module] if node.module else [])])
            for alias in node.names:
                other = f"{base}.{alias.name}"
                yield name, other if other in known else base, node.lineno


def room(module):
    """The folder or single module below the package that a module belongs to."""
    return module.split(".")[1] if "." in module else ""


def circle(graph):
    """Names along a circle of a graph, a mapping to sets, or None."""
    state, path = {}, []

    def visit(name):
        state[name] = "open"
        path.append(name)
        for other in sorted(graph.get(name, ())):
            if state.get(other) == "open":
                return [*path[path.index(other) :], other]
            if other not in state and (found := visit(other)):
                return found
        state[name] = "done"
        path.pop()
        return None

    for name in sorted(graph):
        if name not in state and (found := visit(name)):
            return found
    return None


def floors(graph):
    """Floor of each node: one above the highest that it imports from, else 1."""
    found = {}

    def of(name):
        if name not in found:
            found[name] = 1 + max((of(other) for other in graph.get(name, ())), default=0)
        return found[name]

    for name in list(graph):
        of(name)
    return found


def graph_of(pairs, names=()):
    """A mapping to sets from pairs; nodes without arrows too."""
    found = defaultdict(set, {name: set() for name in names})
    for a, b in pairs:
        if a != b:
            found[a].add(b)
            found.setdefault(b, set())
    return dict(found)


FOREIGN = {"table.index", "p", "dist", "self.logits", "ctx"}  # of pandas and torch


def foreign_writes(root):
    """Assignments to attributes of objects that the function at hand has not made itself."""
    for path, _ in modules(root).values():
        for function in ast.walk(ast.parse(path.read_text())):
            if not isinstance(function, ast.FunctionDef):
                continue
            nodes = list(ast.walk(function))
            made = {
                node.targets[0].id
                for node in nodes
                if isinstance(node, ast.Assign)
                and isinstance(node.targets[0], ast.Name)
                and isinstance(node.value, ast.Call)
            }
            for node in nodes:
                if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                    owner = ast.unparse(node.value)
                    if owner not in made | FOREIGN | {"self", "cls"}:
                        yield path.name, node.lineno, ast.unparse(node)
