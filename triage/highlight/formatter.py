"""HLO tokens as HTML: escaped text in `<span class=...>`, colours left to the style sheet."""
from __future__ import annotations

from html import escape
from typing import IO, Iterable

from pygments.formatter import Formatter
from pygments.token import Comment, Generic, Keyword, Name, Number, String, _TokenType

#: Token type -> class. Types that are not here, and their names, stay plain: most of a page is operand names.
CLASSES = {
    Keyword.Namespace: "hk", Keyword.Declaration: "hk", Keyword.Constant: "hn", Keyword.Type: "ht",
    Generic.Subheading: "hk", Name.Class: "hd", Name.Variable.Instance: "hd", Name.Decorator: "hl", Name.Function: "ho",
    Name.Attribute: "ha", Name.Namespace: "hd", String: "hs", Number: "hn", Comment: "hc",
}


class HloHtmlFormatter(Formatter):
    """Spans without a wrapper around them: a page puts them in a table cell or in `<pre>` itself."""
    name = "HLO spans"
    aliases = ["hlo-html"]
    unicodeoutput = True

    def format(self, tokensource: Iterable[tuple[_TokenType, str]], outfile: IO[str]) -> None:
        for token, text in tokensource:
            outfile.write(span(css_class(token), text))


def css_class(token: _TokenType) -> str:
    """The class of a token or of the nearest type above it; "" for plain text."""
    known = _KNOWN.get(token)
    if known is None:
        above = token
        while above and above not in CLASSES:
            above = above.parent
        known = _KNOWN[token] = CLASSES.get(above, "")
    return known


_KNOWN: dict[_TokenType, str] = {}


def span(name: str, text: str) -> str:
    """`text`, escaped, with the class `name` ("" for none)."""
    return f'<span class="{name}">{escape(text)}</span>' if name else escape(text)
