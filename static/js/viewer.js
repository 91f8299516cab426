// Keys, the stage filter, and the uses of an instruction. Everything here is a convenience: the pages work without it.

const typing = (target) => target.closest("input, select, textarea, [contenteditable]");

// j and k go to the next and previous stage that changed something.
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
  const link = { j: "next-changed", k: "previous-changed" }[event.key];
  const target = link && document.getElementById(link);
  if (target) target.click();
  if (event.key === "Escape") clearUses();
});

// The list of passes: the current one in sight, closed where there is no room for it.
const passes = document.getElementById("passes");
if (passes) {
  if (matchMedia("(max-width: 60rem)").matches) passes.open = false;
  const current = passes.querySelector("[aria-current]");
  if (current && passes.open) passes.scrollTop = current.offsetTop - passes.clientHeight / 2;
}

// A copy's row can be inside a closed list; an address that names it opens the list.
function openTarget() {
  const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const list = target && target.closest("details");
  if (list && !list.open) {
    list.open = true;
    target.scrollIntoView({ block: "center" });
  }
}
openTarget();
addEventListener("hashchange", openTarget);

// The filter shows the stages whose pass or pipeline contains the text.
for (const input of document.querySelectorAll("input[data-filter]")) {
  const list = document.getElementById(input.dataset.filter);
  input.disabled = false;
  input.addEventListener("input", () => {
    const wanted = input.value.trim().toLowerCase();
    for (const group of list.tBodies) {
      const [head, ...rows] = group.rows;
      const whole = head.textContent.toLowerCase().includes(wanted);
      let any = false;
      for (const row of rows) {
        row.hidden = !whole && !row.textContent.toLowerCase().includes(wanted);
        any ||= !row.hidden;
      }
      group.hidden = !whole && !any;
    }
  });
}

// A click on a name marks every place on the page that names it. The Custom Highlight API needs no change of the page.
const supported = "highlights" in CSS;
const NAME = /[\w.\-$<>@:/']+/g;

function nameAt(event) {
  const spot = document.caretPositionFromPoint?.(event.clientX, event.clientY);
  const range = spot ? null : document.caretRangeFromPoint?.(event.clientX, event.clientY);
  const node = spot ? spot.offsetNode : range?.startContainer;
  const offset = spot ? spot.offset : range?.startOffset;
  if (!node || node.nodeType !== Node.TEXT_NODE) return null;
  for (const match of node.data.matchAll(NAME)) {
    if (match.index <= offset && offset <= match.index + match[0].length) {
      return node.data[match.index - 1] === "%" ? match[0] : null;
    }
  }
  return null;
}

function clearUses() {
  if (supported) CSS.highlights.delete("uses");
}

function markUses(name) {
  const ranges = [];
  for (const table of document.querySelectorAll(".code table")) {
    const walker = document.createTreeWalker(table, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      for (const match of node.data.matchAll(NAME)) {
        if (match[0] === name && node.data[match.index - 1] === "%") {
          const range = new Range();
          range.setStart(node, match.index - 1);
          range.setEnd(node, match.index + name.length);
          ranges.push(range);
        }
      }
    }
  }
  CSS.highlights.set("uses", new Highlight(...ranges));
}

if (supported) {
  for (const code of document.querySelectorAll(".code")) {
    code.addEventListener("click", (event) => {
      if (event.target.closest("a") || String(getSelection())) return;
      const name = nameAt(event);
      if (name) markUses(name);
      else clearUses();
    });
  }
}
