"""The report of one pattern of copies: an issue for openxla/xla where the compiler makes them, a note to the program's owner
where the program does. It says what the dump shows and what recompiles measured, and leaves blanks for what nobody knows."""
from __future__ import annotations

from triage.reports.draft import compiler, facts, measured, program
from triage.reports.draft.document import PROGRAM, XLA, Draft, Excerpt, Section, Subject
from triage.reports.draft.words import title

__all__ = ["PROGRAM", "XLA", "Draft", "Excerpt", "Section", "Subject", "draft"]

#: key, heading, what writes it; a section that has nothing to say is left out.
_XLA = (("summary", "Summary", facts.summary), ("impact", "Impact", facts.impact),
        ("compiler", "What the compiler does", compiler.history), ("ablation", "Ablation", measured.ablation),
        ("workarounds", "Workarounds", measured.workarounds), ("reproducer", "Reproducer", measured.reproducer),
        ("expected", "Expected", measured.expected), ("environment", "Environment", facts.environment),
        ("attachments", "Attachments", facts.attachments), ("unknown", "Not known", facts.unknown),
        ("origin", "", facts.footer))
_PROGRAM = (("opening", "", program.opening), ("summary", "Summary", facts.summary), ("impact", "Impact", facts.impact),
            ("program", "Where it is in the program", program.place),
            ("compiler", "What the compiler makes of it", compiler.history),
            ("ablation", "What was measured", measured.ablation), ("workarounds", "Workarounds", measured.workarounds),
            ("environment", "Environment", facts.environment), ("unknown", "Not known", facts.unknown),
            ("origin", "", facts.footer))


def draft(subject: Subject) -> Draft:
    """The draft for one pattern of the report."""
    table = _PROGRAM if subject.address == PROGRAM else _XLA
    sections = [Section(key, heading, "\n".join(write(subject))) for key, heading, write in table]
    return Draft(title(subject), tuple(section for section in sections if section.text), subject.address)
