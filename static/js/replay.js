// Remedies that are being measured: fetches their part of the page anew until the last variant is done.
const WAIT = 1500;

function section() {
  return document.getElementById("remedies");
}

async function refresh() {
  const shown = section();
  if (!shown || !("open" in shown.dataset)) return;
  try {
    const answer = await fetch(shown.dataset.url, { headers: { Accept: "text/html" } });
    if (answer.ok) {
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const fresh = page.getElementById("remedies");
      if (!fresh) {
        location.reload();
        return;
      }
      // What the reader opened stays open, and the keyboard where it was.
      if (!shown.contains(document.activeElement) && !shown.querySelector("details[open]")
          && fresh.innerHTML !== shown.innerHTML) shown.replaceWith(fresh);
      else if (!("open" in fresh.dataset)) shown.replaceWith(fresh);
      if (!("open" in fresh.dataset)) {
        location.reload();      // a history that was made anew changes the whole page
        return;
      }
    }
  } catch {
    // The service does not answer: try again.
  }
  setTimeout(refresh, WAIT);
}

setTimeout(refresh, WAIT);
