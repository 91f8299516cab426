"""Tags of the stage page."""
from __future__ import annotations

from django import template

from triage.viewer.options import Options

register = template.Library()


@register.simple_tag
def switch(options: Options, **changes) -> str:
    """The query string of this page with some options changed."""
    return options.change(**changes)


@register.simple_tag
def difference(now: int, before: int) -> int:
    return now - before
