"""The ruler: source lines and tokens without comments and docstrings, one counter for all tiers.

Pygments reads every language of the tree, so a line of Triton and a line of CUDA are counted by
the same rule. The digest is taken of the same tokens: editing a comment makes no record stale.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from pygments.lexers import get_lexer_for_filename
from pygments.token import Comment, Operator, String, Text, _TokenType

__all__ = ["ROOT", "CodeSize", "SourceError", "digest", "measure"]

ROOT = Path(__file__).resolve().parent.parent


class SourceError(ValueError):
    """An implementation names a source that is not there."""


@dataclass(frozen=True)
class CodeSize:
    """lines: those that hold at least one token; tokens: see `_tokens`."""

    lines: int
    tokens: int


def measure(sources: tuple[str, ...], root: Path = ROOT) -> CodeSize:
    """Lines and tokens of `sources` (see `Implementation.sources`), each file counted once."""
    counted = [_tokens(name, text) for name, text in _texts(sources, root)]
    return CodeSize(
        lines=sum(len({line for line, _ in tokens}) for tokens in counted),
        tokens=sum(map(len, counted)),
    )


def digest(sources: tuple[str, ...], root: Path = ROOT) -> str:
    """Twelve hex digits that change when the code of `sources` does."""
    state = hashlib.sha256()
    for name, text in _texts(sources, root):
        state.update(name.encode() + b"\0")
        for _, token in _tokens(name, text):
            state.update(token.encode() + b"\0")
    return state.hexdigest()[:12]


def _texts(sources: tuple[str, ...], root: Path) -> list[tuple[str, str]]:
    """(path, text) of every source: the named definitions of a Python file, or a whole file with
    the project's own headers that it includes."""
    texts: dict[str, str] = {}
    for source in sources:
        path, _, symbols = source.partition(":")
        text = _read(root / path)
        if symbols:
            texts[source] = _definitions(path, text, symbols.split(","))
        else:
            _add_with_headers(path, text, root, texts)
    return list(texts.items())


def _add_with_headers(path: str, text: str, root: Path, texts: dict[str, str]) -> None:
    if path in texts:
        return
    texts[path] = text
    for header in re.findall(r'^\s*#include "([^"]+)"', text, re.MULTILINE):
        # A header is named beside the file that includes it or from csrc/, as the compilers do.
        places = (Path(path).parent / header, Path("csrc") / header, Path("csrc/kernels") / header)
        found = next((place for place in places if (root / place).is_file()), None)
        # Declarations say nothing that the definitions don't.
        if found is not None and found.suffix == ".cuh":
            _add_with_headers(found.as_posix(), _read(root / found), root, texts)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise SourceError(f"{path}: {error.strerror}") from error


def _definitions(path: str, text: str, names: list[str]) -> str:
    """The source of the named top-level functions, with their decorators, classes and constants."""
    found = {name: node for node in ast.parse(text).body for name in _names(node)}
    missing = [name for name in names if name not in found]
    if missing:
        raise SourceError(f"{path} does not define {', '.join(missing)}")
    lines = text.splitlines(keepends=True)
    pieces = []
    for name in names:
        node = found[name]
        decorators = getattr(node, "decorator_list", [])
        first = min([node.lineno, *(decorator.lineno for decorator in decorators)])
        pieces.append("".join(lines[first - 1 : node.end_lineno]))
    return "\n".join(pieces)


def _names(node: ast.stmt) -> list[str]:
    """What a top-level statement defines."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Assign):
        return [target.id for target in node.targets if isinstance(target, ast.Name)]
    return []


@functools.cache
def _tokens(name: str, text: str) -> list[tuple[int, str]]:
    """(line, text) of each token: a word, a number, an operator, a string literal.

    Comments, docstrings and white space don't count. A preprocessor line, which Pygments gives
    as one comment, is split into words. A string literal is one token, whatever its escapes, and
    so is an operator of several signs, which some lexers give sign by sign.
    """
    lexer = get_lexer_for_filename(name.partition(":")[0], stripnl=False)
    tokens: list[tuple[int, str]] = []
    line = 1
    before = Text
    for kind, value in lexer.get_tokens(text):
        if _is_code(kind) and value.strip():
            if kind in Comment.Preproc or kind in Comment.PreprocFile:
                tokens += [(line, word) for word in value.split() if word != "\\"]
            elif any(kind in joined and before in joined for joined in (String, Operator)):
                tokens[-1] = (tokens[-1][0], tokens[-1][1] + value)
            else:
                tokens.append((line, value.strip()))
        before = Text if kind in String.Doc else kind
        line += value.count("\n")
    return tokens


def _is_code(kind: _TokenType) -> bool:
    if kind in Comment.Preproc or kind in Comment.PreprocFile:
        return True
    return not (kind in Comment or kind in String.Doc or kind in Text)
