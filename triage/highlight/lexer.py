"""A Pygments lexer for HLO text: long and short form, tables, tiled layouts, attributes.

Every rule is linear and at most one line long, so that a line of 500 kB costs what it weighs. What no rule knows is
plain text: nothing is an error, and the tokens joined are the input to the letter (`get_tokens_unprocessed`).
"""
from __future__ import annotations

import re

from pygments.lexer import RegexLexer, bygroups
from pygments.token import Comment, Generic, Keyword, Name, Number, Operator, Punctuation, String, Text, Whitespace

#: A name as XLA prints it, with the `#k` of a compact get-tuple-element.
_NAME = r"%[\w.\-$<>@:/']+(?:\#\d+)*"
_DTYPE = r"(?:pred|bf16|token|opaque|[suc]\d{1,3}|f\d{1,2}(?:e\d+m\d+\w*)?)"


class HloLexer(RegexLexer):
    name = "HLO"
    aliases = ["hlo"]
    filenames = ["*.hlo"]
    url = "https://openxla.org/xla/operation_semantics"
    flags = re.MULTILINE

    tokens = {
        "root": [
            (r"^(HloModule)([ \t]+)([^\s,]+)", bygroups(Keyword.Namespace, Whitespace, Name.Namespace)),
            (r"^(?:FileNames|FunctionNames|FileLocations|StackFrames)$", Generic.Subheading),
            # A computation's first line; an instruction's name comes before " = ".
            (r"^(ENTRY[ \t]+)?(%?(?!\d)[\w.\-$<>@:/']+)(?=[ \t]*[({])", bygroups(Keyword.Declaration, Name.Class)),
            (r"^([ \t]+)(ROOT[ \t]+)?([^\s=(){},\"]+)([ \t]+)(=)(?=[ \t])",
             bygroups(Whitespace, Keyword.Declaration, Name.Variable.Instance, Whitespace, Operator)),
            (r"\n|[^\S\n]+", Whitespace),
            (r"/\*[^*\n]{0,200}\*/", Comment.Multiline),
            (r"//[^\n]*", Comment.Single),
            # The closing quote is optional: a cut string ends with its line and never makes the rule try again.
            (r'"(?:[^"\\\n]|\\[^\n])*"?', String.Double),
            (r"'[^'\n]{0,200}'", String.Single),
            (_DTYPE + r"\[[\d,<=? ]*\]", Keyword.Type),
            (r"(?<=\])\{[\d,]*(?::[^{}\"\n]{0,400})?\}", Name.Decorator),
            (_NAME, Name.Variable),
            (r"[a-z][a-z0-9_\-]*+(?=\()", Name.Function),
            (r"[A-Za-z_][\w.\-]*+(?==)", Name.Attribute),
            (r"(?:true|false|inf|nan)\b", Keyword.Constant),
            (r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.])", Number),
            (r"0x[0-9a-fA-F]+", Number.Hex),
            (r"[\w.\-#]+", Name),
            (r"[(){}\[\],:;<>=*?@%!|&~/+]", Punctuation),
            (r"[^\n]", Text),
        ],
    }
