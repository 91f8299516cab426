"""Replays on the command line: every module that has copies, and a table of what was measured."""
from __future__ import annotations

from pathlib import Path

from django.conf import settings

from triage.engine.analysis import Analysis, InputError, ModuleTexts
from triage.engine.cost import human_bytes
from triage.engine.sentences import plural

from .process import Limits
from .replay import Progress, compare_versions, replay
from .source import NoReplay, Source, source_of
from .toolchains import Toolchain, choose, installed


def replay_all(analysis: Analysis, name: str | None, gpu: str | None, versions: bool, progress: Progress) -> None:
    """Replays the modules with copies, with `versions` also as they are with every toolchain; those that cannot be get a
    note. Raises InputError for a toolchain that is not there."""
    toolchains = installed(Path(settings.TRIAGE_TOOLCHAINS))
    if name and name not in [toolchain.name for toolchain in toolchains]:
        raise InputError(f"There is no toolchain {name}; there are {', '.join(found.name for found in toolchains)}.")
    for number, module in enumerate(analysis.report["modules"]):
        if module["copies"]:
            chosen = [found for found in toolchains if not name or found.name == name]
            others = toolchains if versions else []
            analysis.modules[number] = _replay(module, analysis.modules[number], chosen, others, gpu, progress)


def configured_limits() -> Limits:
    """Of one compile."""
    return Limits(settings.TRIAGE_REPLAY_MEMORY_BYTES, settings.TRIAGE_REPLAY_SECONDS, settings.TRIAGE_REPLAY_DUMP_BYTES)


def _replay(module: dict, texts: ModuleTexts, toolchains: list[Toolchain], others: list[Toolchain], gpu: str | None,
            progress: Progress) -> ModuleTexts:
    """The texts of the module's stages: those of the dump, or of its recompile where that gave it its passes."""
    replayed = None
    try:
        source = source_of(module, texts.text(0), texts.gpu_target, gpu)
        limits = configured_limits()
        replayed = replay(module, source, _toolchain(module, source, toolchains), progress, limits)
        if others:
            compare_versions(module, source, [found for found in others if found.platform == source.platform], progress,
                             limits)
    except NoReplay as reason:
        module["notes"].append(f"Not compiled again: {reason}")
    return replayed or texts


def _toolchain(module: dict, source: Source, toolchains: list[Toolchain]) -> Toolchain:
    version = module["version"] or {"jaxlib_first": None, "jaxlib_last": None}
    found = choose(toolchains, source.platform, version["jaxlib_first"], version["jaxlib_last"])
    if found is None:
        raise NoReplay(f"there is no toolchain for {source.platform}; `manage.py toolchain add {source.platform}` makes one.")
    return found


def table(module: dict) -> list[str]:
    """What was measured, one line per variant, for a terminal."""
    rows = module["replays"]
    if not rows:
        return []
    lines = list(module["replay_says"])
    for row in rows:
        temp = "temp unknown" if row.get("temp_bytes") is None else f"temp {row['temp_bytes']:,}"
        measured = f"{temp}, copied {human_bytes(row['copied_bytes'])}" if row["status"] == "ok" else row["message"]
        measured += f" (no remedy: {row['must_run']})" if row["status"] == "ok" and row.get("must_run") else ""
        lines.append(f"{row['says'] if row['variant'] != 'baseline' else 'as it is'}: {', '.join([measured, *_changes(row)])}")
    return lines + [_version_line(row, module) for row in module.get("versions", ())]


def _changes(row: dict) -> list[str]:
    """What became of the copies."""
    gone, moved = len(row.get("gone", ())), len(row.get("moved", ()))
    counts = (gone, "gone"), (moved, "made otherwise"), (row.get("came_count", 0), "new")
    return [f"{plural(count, 'copy')} {words}" for count, words in counts if count]


def _version_line(row: dict, module: dict) -> str:
    if row["status"] != "ok":
        return f"{row['toolchain']}: {row['message']}"
    temp = f", temp {row['temp_bytes']:,}" if row["temp_bytes"] is not None else ""
    there = f"{row['there']} of {plural(len(module['copies']), 'copy')} there"
    return f"{row['toolchain']}: {there}, {human_bytes(row['copied_bytes'])} copied{temp}"
