"""A dump directory -> modules and their stages in step order. Only names are read here, never contents.

File names follow xla/service/dump.cc: `[timestamp.]module_<id>[.<name>][.cl_<n>].<suffix>`; see the regular expressions.
"""
from __future__ import annotations

import os
import re
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

_BASE = r"^(?:(?P<time>\d{9,})\.)?module_(?P<id>\d{4,})(?:\.(?P<name>.+?))??(?:\.cl_\d+)?"
#: After one pass of a pipeline. A pass name may hold a dot (`optimize_input_output_buffer_alias.h`), a pipeline never.
_PASS = re.compile(_BASE + r"\.(?P<step>\d{4,})\.(?P<pipeline>[^.]+)\.after_(?P<pass>.+?)\.before_(?P<next>.+)\.txt$")
#: Inside one pass; only copy-insertion writes these.
_IN_PASS = re.compile(_BASE + r"\.(?P<step>\d{4,})\.(?P<pipeline>[^.]+)\.(?P<sub>after_[^.]+|before_[^.]+)\.txt$")
_NAMED = re.compile(_BASE + r"\.(?P<label>before_optimizations?|after_spmd_partitioner|before_config_assignment|"
                    r"(?:sm_[\d.]+[a-z]?_gpu_|gfx[\w:+\-]+_gpu_|cpu_|gpu_|tpu_)?after_optimizations?"
                    r"(?:_before_buffer_assignment|_after_buffer_assignment)?|after_codegen)\.txt$")
_OTHER = re.compile(_BASE + r"(?P<suffix>\.[\w.]+|[.\w]*-(?:buffer-assignment|buffer-assignment-values|live-range|"
                    r"memory-usage-report)\.txt)$")

#: Order of the named dumps; those between run after every per-pass file unless their text says otherwise.
NAMED_ORDER = ("before_optimization", "after_spmd_partitioner", "before_config_assignment", "before_buffer_assignment",
               "after_buffer_assignment", "after_optimization", "after_codegen")
FIRST, EARLY = 0, 2     # positions in NAMED_ORDER: the first text, and the last one written while passes still run
MAX_STAGES = 5000       # per module; more are left out and said


@dataclass(frozen=True)
class StageFile:
    """One text of a module. `pass_` is None for a named dump, whose `label` is then the name in the file name."""
    path: Path
    name: str                   # path inside the dump
    module_id: str
    step: int | None
    pipeline: str | None
    pass_: str | None
    label: str
    next: str | None = None     # the pass that was about to run, from `before_<next>`

    @property
    def named_rank(self) -> int | None:
        if self.step is not None:
            return None
        return next((i for i in (3, 4, 0, 1, 2, 5, 6) if NAMED_ORDER[i] in self.label), len(NAMED_ORDER))


@dataclass
class ModuleFiles:
    name: str
    folder: str                                     # inside the dump; "" for its root
    ids: list[str] = field(default_factory=list)
    stages: list[StageFile] = field(default_factory=list)
    others: dict[str, Path] = field(default_factory=dict)      # base name -> path, everything that is no stage
    left_out: int = 0                               # stages over MAX_STAGES
    time: str = ""                                  # the timestamp before the names of its stages; "" for none

    @property
    def total(self) -> int:
        return len(self.stages) + len(self.others) + self.left_out

    @property
    def has_passes(self) -> bool:
        return any(stage.step is not None for stage in self.stages)


def find_modules(root: Path) -> list[ModuleFiles]:
    """The modules below `root`, in order of folder and first module number; [] where no file is named like a dump's."""
    found: dict[tuple[str, ...], ModuleFiles] = {}
    others: list[tuple[str, str, Path]] = []
    for folder, path in _walk(root):
        match, kind = _match(path.name)
        if match is None:
            continue
        if kind == "other":
            others.append((folder, match["id"], path))
            continue
        # Two processes may write the same names into one folder: then timestamps alone tell them apart.
        key = (folder, match["id"], match["time"] or "", _strip_change(match["name"] or ""))
        module = found.setdefault(key, ModuleFiles(key[3], folder, [match["id"]], time=key[2]))
        module.stages.append(_stage(root, path, match, kind))
    modules = _join(list(found.values()))
    _share_out(others, modules)
    # The autotuner compiles single fusions as modules of their own: a few passes, never a named dump.
    whole = [module for module in modules if any(stage.step is None for stage in module.stages)]
    return [_finish(module) for module in whole or modules]


def find_loose_texts(root: Path) -> list[ModuleFiles]:
    """Files that hold an HLO module under another name: a module of one stage each."""
    modules = []
    for folder, path in _walk(root):
        if path.suffix.lower() in (".txt", ".hlo") and _starts_like_hlo(path):
            name = str(path.relative_to(root))
            stage = StageFile(path, name, "", None, None, None, path.name)
            modules.append(ModuleFiles(path.stem, folder, [], [stage]))
    return modules


def _walk(root: Path) -> list[tuple[str, Path]]:
    paths = []
    for folder, folders, names in os.walk(root):
        folders.sort()
        relative = os.path.relpath(folder, root)
        paths += [("" if relative == "." else relative, path) for name in sorted(names)
                  if (path := Path(folder, name)).is_file() or not path.exists()]   # a pipe would never end
    return paths


def _starts_like_hlo(path: Path) -> bool:
    try:
        with open(path, "rb") as file:
            head = file.read(65536).decode("utf-8", "replace")
    except OSError:
        return False
    return bool(re.search(r"^(HloModule\s|ENTRY\s)", head, re.M))


def _match(name: str) -> tuple[re.Match | None, str]:
    for kind, pattern in (("pass", _PASS), ("named", _NAMED), ("in-pass", _IN_PASS), ("other", _OTHER)):
        if (match := pattern.match(name)):
            return match, kind
    return None, ""


def _strip_change(name: str) -> str:
    return re.sub(r"\.cl_\d+$", "", name)


def _stage(root: Path, path: Path, match: re.Match, kind: str) -> StageFile:
    name = str(path.relative_to(root))
    if kind == "named":
        return StageFile(path, name, match["id"], None, None, None, match["label"])
    step = int(match["step"])
    if kind == "pass":
        return StageFile(path, name, match["id"], step, match["pipeline"], match["pass"], match["pass"],
                         match["next"])
    # `copy-insertion.after_removing_unnecessary_copies`: the pass is where the pipeline usually stands.
    return StageFile(path, name, match["id"], step, match["pipeline"], match["pipeline"],
                     f"{match['pipeline']}: {match['sub'].replace('_', ' ')}")


def _join(parts: list[ModuleFiles]) -> list[ModuleFiles]:
    """Joins module numbers that are one compile: equal name, and the earlier number misses what the later one has."""
    named = {(m.folder, m.ids[0], m.time): m for m in parts if m.name}
    joined: list[ModuleFiles] = []
    for module in sorted(parts, key=lambda m: (m.folder, int(m.ids[0]), m.time, not m.name)):
        # Long names are dropped from some file names: those files belong to the module of their number.
        owner = named.get((module.folder, module.ids[0], module.time)) if not module.name else None
        if owner is None:
            owner = next((m for m in reversed(joined) if _same_compile(m, module)), None)
        if owner is None or owner is module:
            joined.append(module)
            continue
        owner.ids += [i for i in module.ids if i not in owner.ids]
        owner.stages += module.stages
    return joined


def _share_out(others: list[tuple[str, str, Path]], modules: list[ModuleFiles]) -> None:
    """Gives the files that are no stages to the modules of their number, and of their name where several have it."""
    numbered: dict[tuple[str, str], list[ModuleFiles]] = defaultdict(list)
    for module in modules:
        for number in module.ids:
            numbered[module.folder, number].append(module)
    for folder, number, path in others:
        options = numbered[folder, number]
        rest = path.name.partition(f"module_{number}.")[2]
        names = {module.name for module in options}
        name = max((name for name in names if name and rest.startswith(name + ".")), key=len, default=None)
        if name is None and len(names) == 1:
            name = names.pop()
        for module in options:
            if module.name == name:
                module.others[path.name] = path


def _same_compile(first: ModuleFiles, second: ModuleFiles) -> bool:
    if (first.folder, first.name) != (second.folder, second.name):
        return False
    return not ({s.named_rank for s in second.stages} & {0}) and not ({s.named_rank for s in first.stages} & {5, 6}) \
        and not ({s.step for s in first.stages} & {s.step for s in second.stages} - {None})


def _finish(module: ModuleFiles) -> ModuleFiles:
    """Stages in order: the first text, early named dumps, per-pass files by step, the late named dumps."""
    def order(stage: StageFile) -> tuple:
        rank = stage.named_rank
        place = 0 if rank == FIRST else 1 if rank is not None and rank <= EARLY else 2 if rank is None else 3
        return place, rank if rank is not None else 0, int(stage.module_id or 0), stage.step or 0, stage.name

    stages = sorted(module.stages, key=order)
    if any(s.named_rank == 5 for s in stages):      # code generation only annotates the final text
        for stage in [s for s in stages if s.named_rank == 6]:
            stages.remove(stage)
            module.others[stage.path.name] = stage.path
    module.left_out = max(0, len(stages) - MAX_STAGES)
    module.stages = stages[:MAX_STAGES - 1] + stages[-1:] if module.left_out else stages
    return module
