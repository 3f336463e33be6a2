"""Values that a Python file assigns, read from its syntax tree. Nothing of the file is ever run.

Literals, names, arithmetic, `dict(...)`, `os.path.join(...)` and copies have values. Every other expression is kept as
it is written, and every statement other than an import or an assignment is reported.
"""

import ast
import copy
import operator
import posixpath
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dragoman.errors import DragomanError

MAX_FILE_BYTES = 1_000_000
MAX_TEXT = 10_000
MAX_INTEGER_BITS = 256
"""Longer texts and larger numbers are no settings. Without limits, a short file could compute for years."""


@dataclass(frozen=True)
class Symbol:
    """An expression that only running the file could evaluate, as it is written."""

    text: str

    @property
    def name(self) -> str:
        """The last part of a dotted name: `LazyAdamOptimizer` of `tf.contrib.opt.LazyAdamOptimizer`."""
        return self.text.rpartition(".")[2]


@dataclass
class Assignments:
    """The variables of a file after its last line, and the statements that were not evaluated."""

    variables: dict[str, Any] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)


def read_assignments(path: Path) -> Assignments:
    """Read a Python file without running it."""
    with path.open("rb") as file:
        content = file.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise DragomanError(f"{path} is larger than {MAX_FILE_BYTES // 1_000_000} MB: it is no configuration.")
    try:
        text = content.decode("utf-8-sig")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Such as invalid escapes in the texts of the file.
            tree = ast.parse(text)
        reader = _Reader()
        for statement in tree.body:
            reader.read(statement)
        return reader.assignments
    except UnicodeDecodeError as error:
        raise DragomanError(f"{path} is not UTF-8 (byte {error.start}): save it as UTF-8.") from None
    except SyntaxError as error:
        raise DragomanError(f"{path}, line {error.lineno or 1}, is not valid Python 3: {error.msg}.") from None
    except ValueError as error:  # Null bytes.
        raise DragomanError(f"{path} is not valid Python: {error}.") from None
    except (RecursionError, MemoryError):
        raise DragomanError(f"{path} is nested too deeply to be a configuration.") from None


class _Reader:
    def __init__(self) -> None:
        self.assignments = Assignments()
        self._variables = self.assignments.variables

    def read(self, statement: ast.stmt) -> None:
        match statement:
            case ast.Import(names=names):
                for alias in names:
                    name = alias.asname or alias.name.partition(".")[0]
                    self._variables[name] = Symbol(alias.name if alias.asname else name)
            case ast.ImportFrom(names=names):
                for alias in names:
                    self._variables[alias.asname or alias.name] = Symbol(alias.name)
            case ast.Assign(targets=targets, value=value):
                self._assign_all(statement, targets, [self._evaluate(value)] * len(targets))
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._assign_all(statement, [target], [self._evaluate(value)])
            case ast.AugAssign(target=ast.Name() | ast.Subscript() as target, op=op, value=value):
                current = ast.parse(ast.unparse(target), mode="eval").body
                self._assign_all(statement, [target], [self._evaluate(ast.BinOp(current, op, value))])
            case ast.Expr(value=ast.Call(func=ast.Attribute(attr="update"))) if self._update(statement):
                pass
            case ast.Expr(value=ast.Constant()) | ast.Pass() | ast.AnnAssign():
                pass
            case _:
                self._skip(statement)

    def _skip(self, statement: ast.stmt) -> None:
        self.assignments.skipped.append(f"line {statement.lineno}: {ast.unparse(statement).partition(chr(10))[0]}")

    def _update(self, statement: ast.Expr) -> bool:
        """Apply `NAME.update({...})` and `NAME.update(key=...)`."""
        call = statement.value
        assert isinstance(call, ast.Call)
        assert isinstance(call.func, ast.Attribute)
        changed, given = self._evaluate(call.func.value), self._make_dict(call)
        if not isinstance(changed, dict) or not isinstance(given, dict):
            return False
        changed.update(given)
        return True

    def _assign_all(self, statement: ast.stmt, targets: Sequence[ast.expr], values: Sequence[Any]) -> None:
        for target, value in zip(targets, values, strict=True):
            if isinstance(target, ast.Tuple | ast.List) and _has_length(value, len(target.elts)):
                self._assign_all(statement, target.elts, value)
            elif not self._assign(target, value):
                self._skip(statement)

    def _assign(self, target: ast.expr, value: Any) -> bool:
        match target:
            case ast.Name(id=name):
                self._variables[name] = value
            case ast.Subscript(value=container, slice=key):
                holder, index = self._evaluate(container), self._evaluate(key)
                if not isinstance(holder, dict) or not _is_key(index):
                    return False
                holder[index] = value
            case _:
                return False
        return True

    def _evaluate(self, node: ast.expr) -> Any:
        """The value of an expression, or the expression itself as a `Symbol`."""
        value = self._value(node)
        return Symbol(ast.unparse(node)) if value is _UNKNOWN or _is_too_large(value) else value

    def _value(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=None | bool() | int() | float() | str() as value):
                return value
            case ast.Name(id=name):
                return self._variables.get(name, Symbol(name))
            case ast.Attribute(value=holder, attr=attribute):
                inner = self._evaluate(holder)
                return Symbol(f"{inner.text}.{attribute}") if isinstance(inner, Symbol) else _UNKNOWN
            case ast.Dict(keys=keys, values=values):
                return self._make_mapping(keys, values)
            case ast.List(elts=elements):
                return [self._evaluate(element) for element in elements]
            case ast.Tuple(elts=elements):
                return tuple(self._evaluate(element) for element in elements)
            case ast.UnaryOp(op=op, operand=operand):
                return _compute(_UNARY.get(type(op)), [self._evaluate(operand)])
            case ast.BinOp(left=left, op=op, right=right):
                return _compute(_BINARY.get(type(op)), [self._evaluate(left), self._evaluate(right)])
            case ast.Subscript(value=container, slice=key):
                holder, index = self._evaluate(container), self._evaluate(key)
                return holder.get(index, _UNKNOWN) if isinstance(holder, dict) and _is_key(index) else _UNKNOWN
            case ast.JoinedStr(values=parts):
                return self._format(parts)
            case ast.Call():
                return self._call(node)
        return _UNKNOWN

    def _make_mapping(self, keys: Sequence[ast.expr | None], values: Sequence[ast.expr]) -> Any:
        result: dict[Any, Any] = {}
        for key, value in zip(keys, values, strict=True):
            content = self._evaluate(value)
            if key is not None:
                name = self._evaluate(key)
                result[name if _is_key(name) else Symbol(ast.unparse(key))] = content
            elif isinstance(content, dict):
                result.update(content)
            else:  # The keys of `**f()` are not known; its entry must not disappear.
                result[Symbol(f"**{ast.unparse(value)}")] = content
        return result

    def _format(self, parts: Sequence[ast.expr]) -> Any:
        texts = []
        for part in parts:
            match part:
                case ast.FormattedValue(value=node, conversion=-1, format_spec=None) | (ast.Constant() as node):
                    value = self._evaluate(node)
                    if not isinstance(value, str | int | float):
                        return _UNKNOWN
                    texts.append(str(value))
                case _:
                    return _UNKNOWN
        return "".join(texts)

    def _call(self, node: ast.Call) -> Any:
        function = self._evaluate(node.func)
        name = function.text if isinstance(function, Symbol) else ""
        if name == "dict":
            return self._make_dict(node)
        arguments = [self._evaluate(argument) for argument in node.args]
        if name in ("os.path.join", "path.join", "join") and all(isinstance(part, str) for part in arguments):
            return posixpath.join(*arguments) if arguments else _UNKNOWN
        if name in ("copy.deepcopy", "deepcopy", "copy.copy") and len(arguments) == 1:
            return copy.deepcopy(arguments[0])
        return _UNKNOWN

    def _make_dict(self, call: ast.Call) -> Any:
        """The dictionary of `dict(other, key=value, **more)`."""
        result: dict[Any, Any] = {}
        for argument in call.args:
            content = self._evaluate(argument)
            if not isinstance(content, dict):
                return _UNKNOWN
            result.update(content)
        keys = [None if keyword.arg is None else ast.Constant(keyword.arg) for keyword in call.keywords]
        result.update(self._make_mapping(keys, [keyword.value for keyword in call.keywords]))
        return result


_UNKNOWN = object()
_UNARY: dict[type, Callable[..., Any]] = {ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Not: operator.not_}
_BINARY: dict[type, Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}


def _compute(function: Callable[..., Any] | None, operands: Sequence[Any]) -> Any:
    """Arithmetic on numbers, and the sum of two texts."""
    numbers = all(isinstance(operand, int | float) for operand in operands)
    texts = all(isinstance(operand, str) for operand in operands) and function is operator.add
    if function is None or not (numbers or texts) or (function is operator.pow and abs(operands[1]) > MAX_INTEGER_BITS):
        return _UNKNOWN
    try:
        result = function(*operands)
    except ArithmeticError:
        return _UNKNOWN
    return _UNKNOWN if isinstance(result, complex) else result


def _is_too_large(value: Any) -> bool:
    too_long = isinstance(value, str) and len(value) > MAX_TEXT
    return too_long or (isinstance(value, int) and value.bit_length() > MAX_INTEGER_BITS)


def _is_key(value: Any) -> bool:
    return isinstance(value, str | int | float | Symbol | None)


def _has_length(value: Any, length: int) -> bool:
    return isinstance(value, list | tuple) and len(value) == length
