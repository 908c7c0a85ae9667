"""Reads a script from a document: everything that is wrong with it at once, each with its line."""

from __future__ import annotations

import re
from collections.abc import Callable

import orjson

from pytest_inferslo.core.document import MapNode, Node, Scalar, described
from pytest_inferslo.core.units import nearest
from pytest_inferslo.errors import ScriptError
from pytest_inferslo.servers import script as s
from pytest_inferslo.servers.script_values import ScriptValues, plain
from pytest_inferslo.servers.wire import APIS

_TOP = ("script", "api", "model", "seed", "uncounted", "answers")
_JSON = (("content-type", "application/json"),)
_EVENTS = (("content-type", "text/event-stream; charset=utf-8"),)


def read_script(document: Node, file: str) -> s.Script:
    """The script that a document says. Raises ScriptError with every problem found."""
    reader = _ScriptReader(file)
    found = reader.script(document)
    if reader.problems:
        raise ScriptError(sorted(reader.problems, key=lambda problem: (problem.line, problem.column)))
    return found


class _ScriptReader(ScriptValues):
    def script(self, node: Node) -> s.Script:
        top = self.mapping(node, "a script", _TOP)
        if "answers" not in top:
            self.fault(node, "a script needs 'answers', a list of answers with their steps")
        rules = tuple(self._rule(item) for item in self.items(top.get("answers"), "answers"))
        if "answers" in top and not rules:
            self.fault(top["answers"], "a script needs at least one answer")
        return s.Script(
            name=self.text(top.get("script"), "script") or "",
            api=self.choice(top.get("api"), "api", APIS) or "chat",
            model=self.text(top.get("model"), "model") or "scripted",
            rules=rules,
            seed=self.whole(top.get("seed"), "seed", 0),
            uncounted=self.whole(top.get("uncounted"), "uncounted", 0),
        )

    def _rule(self, node: Node) -> s.Rule:
        entries = self.mapping(node, "an answer", ("when", "path", "steps"))
        when = self._when(entries.get("when"), self.text(entries.get("path"), "path"))
        if "steps" not in entries and isinstance(node, MapNode):
            self.fault(node, "an answer needs 'steps'")
        steps = self._steps(entries, "steps")
        if "steps" in entries and not steps:
            self.fault(entries["steps"], "an answer without steps says nothing; for silence write 'hang'")
        return s.Rule(when, steps, node.line)

    def _when(self, node: Node | None, path: str | None) -> s.When:
        text = "always" if node is None else self.text(node, "when") or "always"
        for pattern, made in _SELECTIONS:
            match = re.fullmatch(pattern, text)
            if match:
                numbers = [int(group) for group in match.groups()]
                if 0 not in numbers:
                    return made(path, *numbers)
        assert node is not None
        self.fault(
            node,
            f"when {text!r} is not known; requests count from 1: always, 7, 3 to 9, first 20, after 20, "
            "every 10th, every 10th after 20, try 1",
        )
        return s.When(path=path)

    def _steps(self, entries: dict[str, Node], key: str) -> tuple[s.Step, ...]:
        return tuple(self._step(item) for item in self.items(entries.get(key), key))

    def _step(self, node: Node) -> s.Step:
        if isinstance(node, Scalar) and node.text in _WORDS:
            return _WORDS[node.text]
        if isinstance(node, MapNode) and len(node.entries) == 1:
            key, value = node.entries[0]
            if key.text in _STEPS:
                return _STEPS[key.text](self, value)
            self.fault(key, f"unknown step {key.text!r}{nearest(key.text, (*_STEPS, *_WORDS))}")
            return s.Hang()
        known = (*_WORDS, *_STEPS)
        hint = nearest(node.text, known) if isinstance(node, Scalar) else ""
        accepted = f"use one of {', '.join(_WORDS)}, or one 'key: value' of {', '.join(_STEPS)}"
        self.fault(node, f"{described(node)} is no step{hint}; {accepted}")
        return s.Hang()

    def wait(self, node: Node) -> s.Step:
        return s.Wait(self.delay(node, "wait"))

    def head(self, node: Node) -> s.Step:
        if isinstance(node, Scalar):
            return s.Head(self.status(node), _EVENTS, None)
        entries = self.mapping(node, "head", ("status", "headers", "length"))
        length = entries.get("length")
        until_close = isinstance(length, Scalar) and length.text == "until close"
        return s.Head(
            self.status(entries.get("status")),
            self.headers(entries.get("headers")) if "headers" in entries else _EVENTS,
            s.UNTIL_CLOSE if until_close else self.whole(length, "length", None),
        )

    def send(self, node: Node) -> s.Step:
        return s.Raw(self.string(node, "send").encode())

    def chunk(self, node: Node) -> s.Step:
        return s.Body(self.string(node, "chunk").encode())

    def hexadecimal(self, node: Node) -> s.Step:
        text = self.text(node, "hex") or ""
        try:
            return s.Body(bytes.fromhex(text))
        except ValueError:
            self.fault(node, f"hex {text!r}: not pairs of hexadecimal digits")
            return s.Body(b"")

    def event(self, node: Node) -> s.Step:
        return s.Event(plain(node))

    def token(self, node: Node) -> s.Step:
        return s.Token(self.string(node, "token"))

    def reasoning(self, node: Node) -> s.Step:
        return s.Token(self.string(node, "reasoning"), "reasoning")

    def tool(self, node: Node) -> s.Step:
        return s.Token(self.string(node, "tool"), "tool")

    def finish(self, node: Node) -> s.Step:
        return s.Finish(self.text(node, "finish") or "stop")

    def usage(self, node: Node) -> s.Usage:
        entries = self.mapping(node, "usage", ("prompt", "output", "cached", "reasoning"))
        return s.Usage(
            self.whole(entries.get("prompt"), "prompt", 10),
            self.whole(entries.get("output"), "output", None),
            self.whole(entries.get("cached"), "cached", 0),
            self.whole(entries.get("reasoning"), "reasoning", 0),
        )

    def reply(self, node: Node) -> s.Step:
        if isinstance(node, Scalar):
            return s.Reply(self.status(node), b"{}", _JSON)
        entries = self.mapping(node, "reply", ("status", "headers", "body", "json"))
        if "json" in entries and "body" in entries:
            self.fault(node, "reply has 'json' or 'body', not both")
        headers = self.headers(entries.get("headers"))
        body = self.string(entries["body"], "body").encode() if "body" in entries else b""
        if "json" in entries:
            body = orjson.dumps(plain(entries["json"]))
            headers = (*_JSON, *headers)
        return s.Reply(self.status(entries.get("status")), body, headers)

    def answer(self, node: Node) -> s.Step:
        known = ("tokens", "first", "every", "per_event", "reasoning", "finish", "usage")
        entries = self.mapping(node, "answer", known)
        return s.Answer(
            tokens=self.whole(entries.get("tokens"), "tokens", None),
            first=self.delay(entries.get("first"), "first"),
            every=self.delay(entries.get("every"), "every"),
            per_event=self.whole(entries.get("per_event"), "per_event", 1, least=1),
            reasoning=self.whole(entries.get("reasoning"), "reasoning", 0),
            finish=self.text(entries.get("finish"), "finish") or "stop",
            usage=self._counts(entries.get("usage")),
        )

    def _counts(self, node: Node | None) -> s.Usage | None:
        if isinstance(node, Scalar):
            return s.Usage(10, None) if self.flag(node, "usage") else None
        return s.Usage(10, None) if node is None else self.usage(node)

    def repeat(self, node: Node) -> s.Step:
        entries = self.mapping(node, "repeat", ("times", "steps"))
        if "times" not in entries or "steps" not in entries:
            self.fault(node, "repeat needs 'times' and 'steps'")
        return s.Repeat(self.whole(entries.get("times"), "times", 1, least=1), self._steps(entries, "steps"))

    def split(self, node: Node) -> s.Step:
        entries = self.mapping(node, "split", ("at", "every", "pause", "steps"))
        if ("at" in entries) == ("every" in entries) or "steps" not in entries:
            self.fault(node, "split needs 'at' (positions) or 'every' (bytes), and 'steps'")
        at = tuple(self.whole(item, "a position", 0, least=1) for item in self.items(entries.get("at"), "at"))
        if list(at) != sorted(set(at)):
            self.fault(entries["at"], "the positions must rise")
        every = self.whole(entries.get("every"), "every", None, least=1)
        steps = self._steps(entries, "steps")
        self._refuse_unwritten(node, steps)
        return s.Split(steps, at, every, self.delay(entries.get("pause"), "pause"))

    def together(self, node: Node) -> s.Step:
        steps = tuple(self._step(item) for item in self.items(node, "together"))
        self._refuse_unwritten(node, steps)
        return s.Split(steps, (), None, s.NO_DELAY)

    def _refuse_unwritten(self, node: Node, steps: tuple[s.Step, ...]) -> None:
        for step in steps:
            if isinstance(step, s.Repeat):
                self._refuse_unwritten(node, step.steps)
            elif isinstance(step, (s.Wait, s.Answer, s.Split, s.Close, s.Reset, s.Hang)):
                self.fault(node, f"{type(step).__name__.lower()!r} is not bytes that could be cut or joined")


_SELECTIONS: tuple[tuple[str, Callable[..., s.When]], ...] = (
    (r"always", lambda path: s.When(path=path)),
    (r"(\d+)", lambda path, n: s.When(n, n, path=path)),
    (r"(\d+) to (\d+)", lambda path, a, b: s.When(a, b, path=path)),
    (r"first (\d+)", lambda path, n: s.When(1, n, path=path)),
    (r"after (\d+)", lambda path, n: s.When(n + 1, path=path)),
    (r"every (\d+)(?:st|nd|rd|th)", lambda path, n: s.When(every=n, path=path)),
    (r"every (\d+)(?:st|nd|rd|th) after (\d+)", lambda path, n, a: s.When(a + 1, every=n, path=path)),
    (r"try (\d+)", lambda path, n: s.When(attempt=n, path=path)),
)

_WORDS: dict[str, s.Step] = {
    "role": s.Role(),
    "done": s.Done(),
    "end": s.End(),
    "close": s.Close(),
    "reset": s.Reset(),
    "hang": s.Hang(),
    "answer": s.Answer(None, s.NO_DELAY, s.NO_DELAY, 1, 0, "stop", s.Usage(10, None)),
}

_STEPS: dict[str, Callable[[_ScriptReader, Node], s.Step]] = {
    "wait": _ScriptReader.wait,
    "head": _ScriptReader.head,
    "send": _ScriptReader.send,
    "chunk": _ScriptReader.chunk,
    "hex": _ScriptReader.hexadecimal,
    "event": _ScriptReader.event,
    "token": _ScriptReader.token,
    "reasoning": _ScriptReader.reasoning,
    "tool": _ScriptReader.tool,
    "finish": _ScriptReader.finish,
    "usage": _ScriptReader.usage,
    "reply": _ScriptReader.reply,
    "answer": _ScriptReader.answer,
    "repeat": _ScriptReader.repeat,
    "split": _ScriptReader.split,
    "together": _ScriptReader.together,
}
