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
  startFiles([...event.target.files]);
  event.target.value = "";
});

// The whole page takes a drop: beside the box the browser would leave the page and open the file.
for (const name of ["dragenter", "dragover"]) {
  document.addEventListener(name, (event) => { event.preventDefault(); drop.classList.add("over"); });
}
document.addEventListener("dragleave", (event) => { if (!event.relatedTarget) drop.classList.remove("over"); });
document.addEventListener("drop", (event) => {
  event.preventDefault();
  drop.classList.remove("over");
  const files = [];
  for (const item of event.dataTransfer.items) {      // gone when this handler returns: nothing may be awaited here
    if (item.kind !== "file") continue;
    const entry = item.webkitGetAsEntry();
    if (entry?.isDirectory) startDropped(entry);
    else files.push(item.getAsFile());
  }
  startFiles(files.filter(Boolean));
});

async function startDropped(directory) {
  try {
    startFolder(await filesBelow(directory), directory.name);
  } catch (error) {
    new Row(directory.name).fail(`The folder cannot be read: ${error.message || error}`);
  }
}

/** Archives one by one; several texts are the files of one dump. */
function startFiles(files) {
  const texts = files.filter((file) => keep.test(file.name));
  const together = texts.length > 1 ? texts : [];
  for (const file of files) if (!together.includes(file)) startArchive(file);
  if (together.length) startFolder(together.map((file) => ({ path: file.name, file })), `${together.length} files`);
}

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

async function startFolder(all, name = all[0]?.path.split("/")[0] ?? "folder") {
  const row = new Row(name);
  const useful = all.filter(({ file }) => keep.test(file.name) && !dropped.test(file.name));
  if (!useful.length) {
    row.fail(all.length ? `None of the ${all.length} files of this folder is an HLO text. Choose the directory that --xla_dump_to named.`
      : "This folder is empty. Choose the directory that --xla_dump_to named.");
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
    request.upload.onload = () => { row.state.textContent = "Sent. The service is checking it."; };
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
  if (bytes >= 1e9) return `${(bytes / 1e9).toFixed(1)} GB`;
  return bytes >= MIB ? `${(bytes / MIB).toFixed(1)} MiB` : `${(bytes / 1024).toFixed(1)} KiB`;
}

/** For screen readers: the beginning and the end of an upload, not every step of its bar. */
function announce(sentence) {
  document.getElementById("upload-status").textContent = sentence;
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
    announce(`Upload of ${name} started.`);
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
    this.state.setAttribute("role", "alert");
    this.state.replaceChildren(...sentence.split("`").map((part, position) => {
      if (position % 2 === 0) return part;
      const code = document.createElement("code");
      code.textContent = part;
      return code;
    }));
  }

  finish(url) {
    Row.running.delete(this);
    this.button.remove();
    this.bar.remove();
    const link = document.createElement("a");
    link.href = url;
    link.textContent = "Uploaded. Open its page";
    this.state.replaceChildren(link);
    announce(`Upload of ${this.item.querySelector(".name").textContent} finished.`);
    if (!Row.running.size && list.children.length === 1) window.location.assign(url);
  }
}
