// The front page's uploads: a folder is filtered and packed here, an archive is sent as it is; each with its own progress.
import { packFolder } from "./tar.js";

const form = document.getElementById("upload");
const drop = document.getElementById("drop");
const list = document.getElementById("uploads");
const token = form.elements.csrfmiddlewaretoken.value;
const rules = JSON.parse(document.getElementById("upload-rules").textContent);
const keep = new RegExp(rules.keep.join("|"));
const dropped = new RegExp(rules.drop.join("|"));
const MIB = 1024 * 1024;

for (const part of form.querySelectorAll("[data-script]")) part.hidden = false;
for (const part of form.querySelectorAll("[data-plain]")) part.remove();

document.getElementById("folder").addEventListener("change", (event) => {
  const files = [...event.target.files];
  startFolder(files.map((file) => ({ path: file.webkitRelativePath || file.name, file })));
  event.target.value = "";
});
document.getElementById("archive").addEventListener("change", (event) => {
  for (const file of event.target.files) startArchive(file);
  event.target.value = "";
});

for (const name of ["dragenter", "dragover"]) {
  drop.addEventListener(name, (event) => { event.preventDefault(); drop.classList.add("over"); });
}
for (const name of ["dragleave", "drop"]) drop.addEventListener(name, () => drop.classList.remove("over"));
drop.addEventListener("drop", async (event) => {
  event.preventDefault();
  const items = [...event.dataTransfer.items].map((item) => item.webkitGetAsEntry()).filter(Boolean);
  for (const item of items) {
    if (item.isDirectory) startFolder(await filesBelow(item));
    else item.file(startArchive);
  }
});

/** Every file below a dropped directory as [{path, file}]. */
async function filesBelow(directory) {
  const found = [];
  const waiting = [directory];
  while (waiting.length) {
    const reader = waiting.pop().createReader();
    for (;;) {      // a reader hands out a hundred entries at a time
      const entries = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
      if (!entries.length) break;
      for (const entry of entries) {
        if (entry.isDirectory) waiting.push(entry);
        else found.push({ path: entry.fullPath.replace(/^\//, ""),
                          file: await new Promise((resolve, reject) => entry.file(resolve, reject)) });
      }
    }
  }
  return found;
}

async function startFolder(all) {
  if (!all.length) return;
  const name = all[0].path.split("/")[0];
  const row = new Row(name);
  const useful = all.filter(({ file }) => keep.test(file.name) && !dropped.test(file.name));
  if (!useful.length) {
    row.fail(`None of the ${all.length} files of this folder is an HLO text. Choose the directory that --xla_dump_to named.`);
    return;
  }
  const total = useful.reduce((sum, { file }) => sum + file.size, 0);
  try {
    const blob = await packFolder(useful, (done, bytes) => {
      row.show(`Packing ${done} of ${useful.length} files (${all.length - useful.length} of no use skipped)`, bytes, total);
    }, row.abort.signal);
    await send(row, blob, `${name}.tar.gz`);
  } catch (error) {
    row.fail(row.abort.signal.aborted ? "Cancelled." : String(error.message || error));
  }
}

async function startArchive(file) {
  const row = new Row(file.name);
  try {
    await send(row, file, file.name);
  } catch (error) {
    row.fail(row.abort.signal.aborted ? "Cancelled." : String(error.message || error));
  }
}

/** Sends a Blob and goes to the dump's page; rejects with the server's sentence. */
function send(row, blob, name) {
  if (blob.size > rules.limit) throw new Error(`Larger than ${size(rules.limit)}, the limit of this service.`);
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("POST", `${form.action}?name=${encodeURIComponent(name)}`);
    request.setRequestHeader("X-CSRFToken", token);
    request.setRequestHeader("Content-Type", "application/octet-stream");
    request.upload.onprogress = (event) => row.show("Sending", event.loaded, blob.size);
    request.onerror = () => reject(new Error("The connection was lost. Try again."));
    request.onabort = () => reject(new Error("Cancelled."));
    request.onload = () => {
      const answer = parse(request.responseText);
      if (request.status === 201) { row.finish(answer.url); resolve(); }
      else reject(new Error(answer.error || `The service answered ${request.status}.`));
    };
    row.abort.signal.addEventListener("abort", () => request.abort());
    row.show("Sending", 0, blob.size);
    request.send(blob);
  });
}

function parse(text) {
  try { return JSON.parse(text); } catch { return {}; }
}

function size(bytes) {
  return bytes >= MIB ? `${(bytes / MIB).toFixed(1)} MiB` : `${(bytes / 1024).toFixed(1)} KiB`;
}

/** One upload in the list. A single one leads to its page by itself. */
class Row {
  static running = new Set();

  constructor(name) {
    this.abort = new AbortController();
    this.item = list.appendChild(document.createElement("li"));
    const row = this.item.appendChild(document.createElement("div"));
    row.className = "row";
    const label = row.appendChild(document.createElement("span"));
    label.className = "name";
    label.textContent = name;
    this.button = row.appendChild(document.createElement("button"));
    this.button.type = "button";
    this.button.className = "quiet";
    this.button.textContent = "Cancel";
    this.button.addEventListener("click", () => this.abort.abort());
    this.bar = this.item.appendChild(document.createElement("progress"));
    this.bar.setAttribute("aria-label", `Upload of ${name}`);
    this.state = this.item.appendChild(document.createElement("div"));
    this.state.className = "small muted";
    Row.running.add(this);
  }

  show(what, done, total) {
    this.bar.max = total || 1;
    this.bar.value = done;
    this.state.textContent = `${what}: ${size(done)} of ${size(total)}`;
  }

  fail(sentence) {
    Row.running.delete(this);
    this.bar.remove();
    this.button.remove();
    this.state.className = "small failed";
    this.state.textContent = sentence;
  }

  finish(url) {
    Row.running.delete(this);
    this.button.remove();
    this.bar.value = this.bar.max;
    const link = document.createElement("a");
    link.href = url;
    link.textContent = "Uploaded. Open its page";
    this.state.replaceChildren(link);
    if (!Row.running.size && list.children.length === 1) window.location.assign(url);
  }
}
