"""Filters that put numbers and HLO into pages. Everything that comes from a dump is escaped here or by the template."""
from __future__ import annotations

from django import template
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from triage.engine.cost import human_bytes
from triage.highlight import line_html

#: Characters of a name, a shape or a file that a page shows; report.json has all of them.
MAX_NAME = 300
#: Characters of a sentence with names in it.
MAX_SENTENCE = 10_000
register = template.Library()


@register.filter
def size(count: int | None) -> SafeString | str:
    """Bytes in words, the exact number on hover; a dash where it is not known."""
    if count is None:
        return "–"
    return format_html('<span title="{} bytes">{}</span>', f"{count:,}", human_bytes(count))


@register.filter
def words(count: int | None) -> str:
    """Bytes in words, without markup."""
    return human_bytes(count)


@register.filter
def thousands(count: int | None) -> str:
    return "–" if count is None else f"{count:,}"


@register.filter
def signed(count: int) -> str:
    """A difference with its sign (a real minus); nothing for none."""
    return f"+{count:,}" if count > 0 else f"−{-count:,}" if count < 0 else ""


@register.filter
def signed_size(count: int) -> str:
    """A difference of bytes with its sign; nothing for none."""
    return f"+{human_bytes(count)}" if count > 0 else f"−{human_bytes(-count)}" if count < 0 else ""


@register.filter
def percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.0%}" if share >= 0.01 or not share else "< 1%"


@register.filter
def cut(text: str | None) -> str:
    """A name or a shape, its end left out where it is longer than any real one."""
    text = text or ""
    return text if len(text) <= MAX_NAME else f"{text[:MAX_NAME]}…"


@register.filter
def ticks(text: str | None) -> SafeString:
    """A sentence whose `backquoted` parts become code; the end of one that no engine wrote is left out."""
    text = text or ""
    text = text if len(text) <= MAX_SENTENCE else f"{text[:MAX_SENTENCE]}…"
    parts = text.split("`")
    if len(parts) % 2 == 0:     # an odd number of backquotes: the last one is text
        parts[-2:] = ["`".join(parts[-2:])]
    return format_html_join("", "{}{}", (
        (part, "") if position % 2 == 0 else ("", format_html("<code>{}</code>", cut(part)))
        for position, part in enumerate(parts)))


@register.filter
def hlo(text: str | None) -> SafeString:
    """Coloured HLO, such as a shape. A leading space keeps it from being read as the beginning of a line."""
    html = line_html(" " + cut(text or ""))[1:]
    return mark_safe(html)  # noqa: S308 - line_html escapes every token's text
