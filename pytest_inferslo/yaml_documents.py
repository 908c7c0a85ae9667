"""YAML 1.2 text as a document with places; whatever is no such text is a PolicyError with its place."""

from __future__ import annotations

from typing import Any

from pytest_inferslo.core.document import ListNode, MapNode, Node, Scalar
from pytest_inferslo.errors import PolicyError, Problem

#: More than any policy needs; aliases cannot blow a small file up to more than this.
_MOST_NODES = 20_000
_DEEPEST = 40


def read_document(data: bytes, file: str) -> Node:
    """The one document in `data`; PolicyError for bytes that are no UTF-8, no YAML, or several documents."""
    first, *others = read_documents(data, file)
    if others:
        raise PolicyError(
            [Problem(file, others[0].line, others[0].column, "a second document begins; one file is one")]
        )
    return first


def read_documents(data: bytes, file: str) -> list[Node]:
    """All documents in `data`, at least one."""
    converter = _Converter(file)
    return [converter.convert(node, 0) for node in _composed(_decoded(data, file), file)]


def _decoded(data: bytes, file: str) -> str:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _error(file, data[: error.start].decode("utf-8", "replace"), "is no UTF-8 text") from None
    for position, character in enumerate(text):
        if not (
            character.isprintable() or character in "\t\n\r\u0085\u00a0\u2028\u2029" or character > "\u00a0"
        ):
            raise _error(file, text[:position], f"holds the control character {character!r}")
    return text


def _error(file: str, before: str, message: str) -> PolicyError:
    line = before.count("\n") + 1
    return PolicyError([Problem(file, line, len(before) - before.rfind("\n"), message)])


def _composed(text: str, file: str) -> list[Any]:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    yaml = YAML(typ="rt", pure=True)
    yaml.version = (1, 2)
    try:
        nodes = [node for node in yaml.compose_all(text) if node is not None]
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        reason = " ".join(part for part in (error.context, error.problem) if part)
        if error.context == "while parsing a flow mapping":
            reason += "; between the entries of {...} stands a comma"
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        raise PolicyError([Problem(file, line, column, f"is no YAML: {reason}")]) from None
    except (
        YAMLError,
        RecursionError,
        ValueError,
        LookupError,
        AttributeError,
        TypeError,
        AssertionError,
    ) as error:
        # ruamel's scanner lets some malformed texts run into plain Python errors.
        raise PolicyError([Problem(file, 1, 1, f"is no YAML: {error or type(error).__name__}")]) from None
    if not nodes:
        raise PolicyError([Problem(file, 1, 1, "is empty; begin it with 'policy: NAME'")])
    return nodes


class _Converter:
    def __init__(self, file: str) -> None:
        self._file = file
        self._count = 0

    def convert(self, node: Any, depth: int) -> Node:
        from ruamel.yaml.nodes import MappingNode, ScalarNode, SequenceNode

        line, column = node.start_mark.line + 1, node.start_mark.column + 1
        self._count += 1
        if depth > _DEEPEST or self._count > _MOST_NODES:
            raise PolicyError([Problem(self._file, line, column, "is nested too deep or refers to itself")])
        if isinstance(node, ScalarNode):
            return Scalar(str(node.value), _kind(node), line, column)
        if isinstance(node, SequenceNode):
            return ListNode(tuple(self.convert(item, depth + 1) for item in node.value), line, column)
        assert isinstance(node, MappingNode)
        return MapNode(tuple(self._entry(key, value, depth) for key, value in node.value), line, column)

    def _entry(self, key: Any, value: Any, depth: int) -> tuple[Scalar, Node]:
        word = self.convert(key, depth + 1)
        if not isinstance(word, Scalar):
            raise PolicyError([Problem(self._file, word.line, word.column, "a key must be a text")])
        return word, self.convert(value, depth + 1)


def _kind(node: Any) -> str:
    kind = str(node.tag).rsplit(":", 1)[-1]
    return kind if kind in ("int", "float", "bool", "null") else "str"
