// Copied bytes over the stages, drawn from the table that holds the numbers. Without scripts the table remains.
const d3 = window.d3;
const figure = document.getElementById("chart");
const HEIGHT = 220;
const MARGIN = { top: 34, right: 12, bottom: 26, left: 64 };
const SERIES = [
  { key: "before", label: "before a loop" },
  { key: "in", label: "in a loop" },
  { key: "entry", label: "outside any loop" },
];

function words(bytes) {
  if (bytes >= 1e9) return `${(bytes / 1e9).toFixed(1)} GB`;
  if (bytes >= 1048576) return `${(bytes / 1048576).toFixed(1)} MiB`;
  if (bytes >= 1024) return `${(bytes / 1024).toFixed(1)} KiB`;
  return `${bytes} B`;
}

function readRows() {
  return Array.from(document.querySelectorAll("#chart-data tbody tr"), (row, index) => ({
    index, step: row.dataset.step, link: row.querySelector("a"), changed: row.dataset.changed === "1",
    before: +row.dataset.before, in: +row.dataset.in, entry: +row.dataset.entry, introduced: +row.dataset.new, by: row.dataset.by,
  }));
}

const total = (row) => row.before + row.in + row.entry;
const sentence = (row) => `${row.step ? `Step ${row.step}, ` : ""}${row.link.textContent}: ${words(total(row))}`
  + (row.introduced ? `, ${row.introduced} ${row.introduced === 1 ? "copy" : "copies"} first written here` : "") + (row.changed ? "" : ", unchanged");

function patterns(svg) {
  const defs = svg.append("defs");
  const hatch = defs.append("pattern").attr("id", "hatch").attr("width", 6).attr("height", 6)
    .attr("patternUnits", "userSpaceOnUse").attr("patternTransform", "rotate(45)");
  hatch.append("line").attr("class", "hatch-line").attr("y2", 6);
  const dots = defs.append("pattern").attr("id", "dots").attr("width", 5).attr("height", 5)
    .attr("patternUnits", "userSpaceOnUse");
  dots.append("circle").attr("class", "dot").attr("cx", 2).attr("cy", 2).attr("r", 1.2);
}

function legend(rows) {
  const list = d3.create("ul").attr("class", "legend");
  for (const { key, label } of SERIES) {
    if (!rows.some((row) => row[key])) continue;
    const item = list.append("li");
    item.append("svg").attr("viewBox", "0 0 20 12").attr("aria-hidden", "true")
      .append("rect").attr("class", key).attr("width", 20).attr("height", 12);
    item.append("span").text(label);
  }
  return list.node();
}

// Round steps in the unit the labels use.
function ticks(most) {
  const unit = most >= 1e9 ? 1e9 : most >= 1048576 ? 1048576 : most >= 1024 ? 1024 : 1;
  return d3.ticks(0, most / unit, 4).map((value) => value * unit);
}

function shade(svg, x, layouts, bottom) {
  if (!(layouts > 0)) return;
  const edge = x(layouts);
  svg.append("rect").attr("class", "early").attr("x", MARGIN.left).attr("y", MARGIN.top)
    .attr("width", edge - MARGIN.left).attr("height", bottom - MARGIN.top);
  svg.append("line").attr("class", "early-edge").attr("x1", edge).attr("x2", edge)
    .attr("y1", MARGIN.top).attr("y2", bottom);
  if (edge - MARGIN.left > 120) {
    svg.append("text").attr("x", edge - 5).attr("y", bottom - 6).attr("text-anchor", "end").text("layouts not assigned");
  }
}

function axes(svg, x, y, rows, width, bottom, most) {
  const marks = ticks(most);
  const grid = svg.append("g").attr("class", "grid");
  const left = svg.append("g").attr("class", "axis");
  for (const value of marks) {
    grid.append("line").attr("x1", MARGIN.left).attr("x2", width - MARGIN.right).attr("y1", y(value)).attr("y2", y(value));
    left.append("text").attr("x", MARGIN.left - 6).attr("y", y(value) + 3.5).attr("text-anchor", "end").text(words(value));
  }
  const below = svg.append("g").attr("class", "axis");
  below.append("line").attr("x1", MARGIN.left).attr("x2", width - MARGIN.right).attr("y1", bottom).attr("y2", bottom);
  const every = Math.max(1, Math.ceil(rows.length / ((width - MARGIN.left) / 56)));
  for (const row of rows) {
    if (row.index % every || !row.step) continue;
    below.append("text").attr("x", x(row.index + 0.5)).attr("y", bottom + 14).attr("text-anchor", "middle").text(row.step);
  }
  below.append("text").attr("x", MARGIN.left - 6).attr("y", bottom + 14).attr("text-anchor", "end").text("step");
}

// Runs of stages where a series is there at all, each with its end: a step area keeps a value over the stage's width.
function runs(layer) {
  const result = [];
  layer.forEach((d, index) => {
    if (d[1] <= d[0]) return;
    const last = result.at(-1);
    if (last && last.at(-1).at === index) last.splice(-1, 1);
    else result.push([]);
    result.at(-1).push({ at: index, from: d[0], to: d[1] }, { at: index + 1, from: d[0], to: d[1] });
  });
  return result;
}

function areas(svg, x, y, rows) {
  const shape = d3.area().x((d) => x(d.at)).y0((d) => y(d.from)).y1((d) => y(d.to)).curve(d3.curveStepAfter);
  for (const layer of d3.stack().keys(SERIES.map((series) => series.key))(rows)) {
    for (const run of runs(layer)) svg.append("path").attr("class", layer.key).attr("d", shape(run));
  }
}

function markers(svg, x, y, rows, width, bottom) {
  let taken = -Infinity;
  for (const row of rows.filter((candidate) => candidate.introduced)) {
    const at = x(row.index);
    const flip = at > width * 0.6;
    const marker = svg.append("a").attr("class", "marker").attr("href", row.link.href).attr("aria-label", sentence(row));
    marker.append("line").attr("x1", at).attr("x2", at).attr("y1", MARGIN.top - 14).attr("y2", bottom);
    const label = `${row.introduced}\u00d7 ${row.by}`;
    if (at - taken > label.length * 6) {
      marker.append("text").attr("x", at + (flip ? -4 : 4)).attr("y", MARGIN.top - 18)
        .attr("text-anchor", flip ? "end" : "start").text(label);
      taken = at;
    }
  }
}

function cursor(svg, slider, x, rows, bottom, readout) {
  const line = svg.append("g").attr("class", "cursor").attr("visibility", "hidden");
  line.append("line").attr("y1", MARGIN.top - 14).attr("y2", bottom);
  let current = rows.findIndex((row) => row.introduced);
  if (current < 0) current = rows.length - 1;

  function move(index) {
    current = Math.max(0, Math.min(rows.length - 1, index));
    const middle = x(current + 0.5);
    line.attr("visibility", "visible").select("line").attr("x1", middle).attr("x2", middle);
    readout.textContent = sentence(rows[current]);
    slider.setAttribute("aria-valuenow", String(current));
    slider.setAttribute("aria-valuetext", sentence(rows[current]));
  }

  svg.append("rect").attr("class", "hit").attr("x", MARGIN.left).attr("y", MARGIN.top)
    .attr("width", x(rows.length) - MARGIN.left).attr("height", bottom - MARGIN.top)
    .on("pointermove", (event) => move(Math.floor(x.invert(d3.pointer(event)[0]))))
    .on("click", (event) => { move(Math.floor(x.invert(d3.pointer(event)[0]))); rows[current].link.click(); });
  slider.onfocus = () => move(current);
  slider.onkeydown = (event) => {
    const jump = { ArrowLeft: -1, ArrowRight: 1, PageDown: -10, PageUp: 10, Home: -Infinity, End: Infinity }[event.key];
    if (jump !== undefined) {
      event.preventDefault();
      move(current + jump);
    } else if (event.key === "Enter") {
      rows[current].link.click();
    }
  };
  slider.setAttribute("aria-valuetext", sentence(rows[current]));
  slider.setAttribute("aria-valuenow", String(current));
}

function draw(plot, slider, readout, rows) {
  const width = Math.max(300, plot.clientWidth);
  const bottom = HEIGHT - MARGIN.bottom;
  const most = d3.max(rows, total) || 1;
  const x = d3.scaleLinear([0, rows.length], [MARGIN.left, width - MARGIN.right]);
  const y = d3.scaleLinear([0, most * 1.05], [bottom, MARGIN.top]);
  const svg = d3.create("svg").attr("viewBox", `0 0 ${width} ${HEIGHT}`);
  patterns(svg);
  shade(svg, x, +figure.dataset.layouts, bottom);
  axes(svg, x, y, rows, width, bottom, most);
  areas(svg, x, y, rows);
  cursor(svg, slider, x, rows, bottom, readout);
  markers(svg, x, y, rows, width, bottom);
  plot.replaceChildren(svg.node(), slider);
}

function start() {
  const rows = readRows();
  if (!rows.length) return;
  const plot = document.createElement("div");
  plot.className = "plot";
  // The keyboard's way to the stages, over the drawing and apart from the links in it.
  const slider = document.createElement("div");
  slider.className = "slider";
  slider.tabIndex = 0;
  slider.setAttribute("role", "slider");
  slider.setAttribute("aria-label", "Stage");
  slider.setAttribute("aria-valuemin", "0");
  slider.setAttribute("aria-valuemax", String(rows.length - 1));
  const readout = document.createElement("p");
  readout.className = "readout muted";
  figure.insertBefore(plot, figure.querySelector("details"));
  figure.insertBefore(legend(rows), plot);
  figure.insertBefore(readout, figure.querySelector("details"));
  draw(plot, slider, readout, rows);
  let width = plot.clientWidth;
  new ResizeObserver(() => {
    if (plot.clientWidth !== width) {
      width = plot.clientWidth;
      draw(plot, slider, readout, rows);
    }
  }).observe(plot);
}

if (figure && d3) start();
