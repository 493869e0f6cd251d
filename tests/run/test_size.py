"""How much of the package a run passes, and how large it is: numbers that may fall, not grow."""

import ast
import io
import sys
import tokenize
from pathlib import Path

import pytest
import torch

import trjmcmc as trj
from trjmcmc import graphs

ROOT = Path(trj.__file__).parent
NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def passed_by(run):
    """Functions of the package that a call executes, and files that they are in."""
    functions = set()

    def note(frame, event, _):
        if event == "call" and frame.f_code.co_filename.startswith(str(ROOT)):
            functions.add((frame.f_code.co_filename, frame.f_code.co_firstlineno))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(before)
    return len(functions), len({file for file, _ in functions})


def lines_of(path):
    """Lines of code, docstrings and comments left out."""
    source, documented = path.read_text(), set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                documented |= {*range(first.lineno, first.end_lineno + 1)}
    found = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in NO_CODE:
            found |= {*range(token.start[0], token.end[0] + 1)}
    return len(found - documented)


@pytest.mark.parametrize(
    ("target", "functions", "files"),
    [
        (trj.problems.sinh_arcsinh, 687, 87),
        (lambda: graphs.target(graphs.bge(torch.eye(5).repeat(12, 1))), 367, 59),
    ],
    ids=["list", "graphs"],
)
def test_what_a_default_run_executes(target, functions, files):
    sampler = trj.TRJSampler(target(), seed=1)
    passed = passed_by(lambda: sampler.run(progress=False))
    assert passed[0] <= functions and passed[1] <= files


UPPER = ["run", "pilot", "fit", "checkpoint", "approximate", "result", "validation", "doubts"]


@pytest.mark.parametrize(
    ("rooms", "most"),
    [(["run"], 4648), (UPPER, 15_310), (["."], 37_586)],
    ids=["run", "upper storey", "package"],
)
def test_lines_of_code(rooms, most):
    assert sum(lines_of(path) for room in rooms for path in (ROOT / room).rglob("*.py")) <= most
