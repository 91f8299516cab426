// A dump that is being analysed: asks once a second how far it is, shows what the last stages say as soon
// as that is known, and loads the page anew when it is finished.
const box = document.getElementById("progress");
const text = document.getElementById("progress-text");
const first = document.getElementById("first");
const bar = document.getElementById("progress-bar");

// HLO names stand in backticks.
function ticked(sentence) {
  return sentence.split("`").map((part, index) => {
    if (index % 2 === 0) return part;
    const code = document.createElement("code");
    code.textContent = part;
    return code;
  });
}

function showFirst(modules) {
  if (!modules.length || !first.hidden) return;
  first.querySelector("ul").replaceChildren(...modules.map((module) => {
    const name = document.createElement("strong");
    name.textContent = module.name;
    const item = document.createElement("li");
    item.append(name, " ", ...ticked(module.verdict));
    return item;
  }));
  first.hidden = false;
}

function show(state) {
  showFirst(state.first);
  const phase = state.phase ? state.phase[0].toUpperCase() + state.phase.slice(1) : "Starting";
  const words = state.status === "queued" ? "Waiting for a worker."
    : state.total ? `${phase}: ${state.done} of ${state.total}` : phase;
  if (text.textContent !== words) text.textContent = words;
  if (state.total) {
    bar.max = state.total;
    bar.value = state.done;
  } else {
    bar.removeAttribute("value");
  }
}

async function ask() {
  try {
    const answer = await fetch(box.dataset.url, { headers: { Accept: "application/json" } });
    if (answer.status === 404) {
      location.reload();
      return;
    }
    if (answer.ok) {
      const state = await answer.json();
      if (state.finished) {
        location.reload();
        return;
      }
      show(state);
    }
  } catch {
    text.textContent = "The service does not answer; trying again.";
  }
  setTimeout(ask, 1000);
}

ask();
