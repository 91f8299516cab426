// Buttons with data-copy="ID" copy the text (or the value) of that element and say so.
for (const button of document.querySelectorAll("[data-copy]")) {
  const source = document.getElementById(button.dataset.copy);
  const label = button.textContent;
  button.hidden = false;
  button.addEventListener("click", async () => {
    const text = "value" in source ? source.value : source.textContent;
    button.textContent = (await toClipboard(text.trim(), source)) ? "Copied" : "Press Ctrl+C";
    setTimeout(() => { button.textContent = label; }, 2000);
  });
}

/** True when the text is in the clipboard; else it is selected, so that the keyboard can copy it. */
async function toClipboard(text, source) {
  try {
    await navigator.clipboard.writeText(text);      // there only on https and localhost
    return true;
  } catch {
    if ("select" in source) source.select();
    else window.getSelection().selectAllChildren(source);
    return document.execCommand("copy");
  }
}
