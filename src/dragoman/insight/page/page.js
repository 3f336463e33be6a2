"use strict";
// Draws runs as digest.py describes them. All text goes in as text, never as markup.

const $ = (id) => document.getElementById(id);
const COLOURS = ["--c1", "--c2", "--c3", "--c4", "--c5", "--c6"].map((name) => `var(${name})`);
const STATES = { running: "good", finished: "good", patience: "good", interrupted: "warn", silent: "bad", diverged: "bad" };
let runs = [];
let chosen = 0; // The run whose details are shown.
let zoom = null; // Steps that all charts show, [from, to]; null is all.
const opened = new Set(); // Answers that the reader has unfolded.

function node(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children.filter((child) => child !== null));
  return made;
}

function shape(tag, attributes = {}, text = "") {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.textContent = text;
  return made;
}

// Numbers as people write them.

const count = (number) => Math.round(number).toLocaleString("en");

function short(number) {
  if (number === 0) return "0";
  const size = Math.abs(number);
  if (size >= 1e6) return `${+(number / 1e6).toPrecision(3)}M`;
  if (size >= 1e4) return `${+(number / 1e3).toPrecision(3)}k`;
  return size < 1e-3 ? number.toExponential(1) : `${+number.toPrecision(4)}`;
}

function span(seconds) {
  if (seconds < 60) return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  const minutes = Math.floor(Math.round(seconds) / 60);
  const two = (number) => String(number).padStart(2, "0");
  if (minutes < 60) return `${minutes} min ${two(Math.round(seconds) % 60)} s`;
  return `${Math.floor(minutes / 60)} h ${two(minutes % 60)} min`;
}

function bytes(number) {
  for (const unit of ["B", "kB", "MB", "GB"]) {
    if (number < 1000) return unit === "B" ? `${number} B` : `${number.toFixed(1)} ${unit}`;
    number /= 1000;
  }
  return `${number.toFixed(1)} TB`;
}

function ticks(low, high, most) {
  const raw = (high - low) / most || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((each) => each >= raw);
  const made = [];
  for (let n = Math.ceil(low / step); n * step <= high + step * 1e-9; n += 1) made.push(n * step);
  return made;
}

function smoothed(values, weight) {
  let mean = null;
  return values.map((value) => {
    if (value === null) return null;
    mean = mean === null ? value : weight * mean + (1 - weight) * value;
    return mean;
  });
}

// A chart over steps. Series are lines, or areas upon each other where `stacked`.

class Chart {
  constructor(place, title, unit, stacked = false) {
    Object.assign(this, { title, unit, stacked, series: [], at: null, dragged: null });
    this.svg = shape("svg", { role: "img", tabindex: "0" });
    this.legend = node("ul", { class: "legend" });
    this.output = node("output", { "aria-live": "polite" });
    place.append(node("div", { class: "chart" }, node("h3", {}, title), this.svg, this.legend, this.output));
    this.svg.addEventListener("pointermove", (event) => this.point(event));
    this.svg.addEventListener("pointerleave", () => { if (!this.dragged) this.read(null); });
    this.svg.addEventListener("pointerdown", (event) => {
      this.svg.setPointerCapture(event.pointerId);
      this.dragged = [this.stepAt(event), this.stepAt(event)];
    });
    this.svg.addEventListener("pointerup", () => {
      const [from, to] = [...(this.dragged || [0, 0])].sort((a, b) => a - b);
      this.dragged = null;
      if (to - from > (this.right - this.left) * 0.02) setZoom([from, to]);
      else this.draw();
    });
    this.svg.addEventListener("dblclick", () => setZoom(null));
    this.svg.addEventListener("keydown", (event) => this.press(event));
    new ResizeObserver(() => this.draw()).observe(this.svg);
  }

  show(series) {
    this.series = series.filter((each) => each.xs.length > 0);
    this.legend.replaceChildren(...this.series.map((each) => {
      const mark = node("i");
      mark.style.background = each.colour;
      return node("li", {}, mark, each.name);
    }));
    this.draw();
  }

  draw() {
    const width = this.svg.clientWidth || 480, height = this.svg.clientHeight || 240;
    const steps = this.series.flatMap((each) => [each.xs[0], each.xs[each.xs.length - 1]]);
    this.svg.replaceChildren();
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    if (steps.length === 0) {
      this.svg.append(shape("text", { x: 10, y: 24 }, "Nothing was recorded yet."));
      this.svg.setAttribute("aria-label", `${this.title}: nothing was recorded yet.`);
      return;
    }
    const [left, right] = zoom || [Math.min(0, ...steps), Math.max(...steps)];
    const lines = this.stack();
    const inside = lines.flatMap((each) => each.points.filter(([x]) => x >= left && x <= right).map(([, y]) => y));
    let low = this.stacked ? 0 : Math.min(...inside), high = Math.max(...inside);
    if (!this.stacked && inside.length > 50) {
      // A few high values, such as the first losses, would press all others flat: they run out at the top.
      const usual = [...inside].sort((a, b) => a - b)[Math.floor(0.97 * inside.length)];
      high = Math.min(high, usual + 0.25 * (usual - low));
    }
    if (!inside.length) [low, high] = [0, 1];
    if (low === high) [low, high] = [low - Math.abs(low) * 0.1 - 1e-9, high + Math.abs(high) * 0.1 + 1e-9];
    const margin = { left: 48, right: 8, top: 8, bottom: 20 };
    const toX = (step) => margin.left + (step - left) / (right - left || 1) * (width - margin.left - margin.right);
    const toY = (value) => height - margin.bottom - (value - low) / (high - low) * (height - margin.top - margin.bottom);
    Object.assign(this, { left, right, margin, width, toX });
    for (const value of ticks(low, high, 5)) {
      this.svg.append(shape("line", { class: "grid", x1: margin.left, x2: width - margin.right, y1: toY(value), y2: toY(value) }));
      this.svg.append(shape("text", { x: margin.left - 6, y: toY(value) + 4, "text-anchor": "end" }, short(value)));
    }
    for (const step of ticks(left, right, Math.max(2, width / 110))) {
      const anchor = toX(step) > width - 24 ? "end" : "middle";
      this.svg.append(shape("text", { x: toX(step), y: height - 5, "text-anchor": anchor }, short(step)));
    }
    const clip = `clip-${this.title.replace(/\W/g, "")}`;
    const box = shape("clipPath", { id: clip });
    box.append(shape("rect", { x: margin.left, y: 0, width: Math.max(0, width - margin.left - margin.right), height }));
    this.svg.append(box);
    const area = shape("g", { "clip-path": `url(#${clip})` });
    this.svg.append(area);
    lines.forEach((line) => this.line(area, line, toX, toY));
    this.overlay(area, toX, height);
    this.describe();
  }

  stack() {
    if (!this.stacked) {
      return this.series.map((each) => ({ ...each, points: each.xs.map((x, n) => [x, each.ys[n]]).filter(([, y]) => y !== null) }));
    }
    let below = this.series[0].xs.map(() => 0);
    return this.series.map((each) => {
      const base = below;
      below = below.map((sum, n) => sum + (each.ys[n] || 0));
      const top = below;
      return { ...each, points: each.xs.map((x, n) => [x, top[n]]), base: each.xs.map((x, n) => [x, base[n]]) };
    });
  }

  line(area, line, toX, toY) {
    const path = (points) => points.map(([x, y], n) => `${n ? "L" : "M"}${toX(x).toFixed(1)},${toY(y).toFixed(1)}`).join("");
    if (this.stacked) {
      const back = [...line.base].reverse();
      const outline = `${path(line.points)}${path(back).replace("M", "L")}Z`;
      area.append(shape("path", { d: outline, fill: line.colour, "fill-opacity": 0.75, stroke: line.colour, "stroke-width": 0.5 }));
      return;
    }
    area.append(shape("path", {
      d: path(line.points), fill: "none", stroke: line.colour, "stroke-width": line.dots ? 2 : 1.4, "stroke-linejoin": "round",
    }));
    if (line.dots && line.points.length < 80) {
      line.points.forEach(([x, y]) => area.append(shape("circle", { cx: toX(x), cy: toY(y), r: 3, fill: line.colour })));
    }
  }

  overlay(area, toX, height) {
    if (this.dragged) {
      const [from, to] = [...this.dragged].sort((a, b) => a - b);
      area.append(shape("rect", { class: "chosen", x: toX(from), y: 0, width: toX(to) - toX(from), height }));
    }
    if (this.at !== null) area.append(shape("line", { class: "cursor", x1: toX(this.at), x2: toX(this.at), y1: 0, y2: height }));
  }

  describe() {
    const words = this.series.map((each) => {
      const known = each.ys.filter((value) => value !== null);
      return `${each.name} from ${short(known[0] ?? 0)} to ${short(known[known.length - 1] ?? 0)}`;
    });
    this.svg.setAttribute("aria-label", `${this.title}: ${words.join("; ")}.`);
  }

  read(step) {
    this.at = step;
    const words = step === null ? [] : this.series.map((each) => {
      let nearest = 0;
      each.xs.forEach((x, n) => { if (Math.abs(x - step) < Math.abs(each.xs[nearest] - step)) nearest = n; });
      if (this.series.length === 1 || nearest || each.xs.length === 1) this.at = each.xs[nearest];
      return each.ys[nearest] === null ? "" : `${each.name} ${short(each.ys[nearest])}${this.unit}`;
    }).filter(Boolean);
    this.output.textContent = step === null ? "" : `step ${count(this.at)}: ${words.join(", ")}`;
    this.draw();
  }

  stepAt(event) {
    const x = event.clientX - this.svg.getBoundingClientRect().left;
    const share = (x - this.margin.left) / (this.width - this.margin.left - this.margin.right);
    return this.left + Math.min(1, Math.max(0, share)) * (this.right - this.left);
  }

  point(event) {
    if (!this.series.length) return;
    const step = this.stepAt(event);
    if (this.dragged) this.dragged[1] = step;
    this.read(step);
  }

  press(event) {
    if (!this.series.length) return;
    const width = this.right - this.left, xs = this.series[0].xs;
    const now = this.at ?? this.left;
    const keys = {
      ArrowRight: () => this.read(xs.find((x) => x > now) ?? xs[xs.length - 1]),
      ArrowLeft: () => this.read([...xs].reverse().find((x) => x < now) ?? xs[0]),
      "+": () => setZoom([Math.max(this.left, now - width / 4), Math.min(this.right, now + width / 4)]),
      "-": () => setZoom([now - width, now + width]),
      0: () => setZoom(null),
      Escape: () => setZoom(null),
    };
    if (keys[event.key]) {
      event.preventDefault();
      keys[event.key]();
    }
  }
}

function setZoom(range) {
  const last = Math.max(1, ...runs.map((run) => run.step));
  zoom = range && [Math.max(0, range[0]), Math.min(last, range[1])];
  if (zoom && zoom[1] - zoom[0] >= last) zoom = null;
  $("whole").hidden = zoom === null;
  Object.values(charts).forEach((chart) => chart.draw());
}

const charts = {
  loss: new Chart($("curves"), "Loss (nats per target token)", ""),
  bleu: new Chart($("curves"), "BLEU", ""),
  rate: new Chart($("curves"), "Learning rate", ""),
  norm: new Chart($("curves"), "Gradient norm", ""),
  speed: new Chart($("curves"), "Tokens a second", ""),
  anatomy: new Chart($("anatomy"), "Parts of a step", " s", true),
};

function drawCharts() {
  const weight = Number($("smoothing").value), many = runs.length > 1;
  const named = (run, words) => (many ? `${run.run}: ${words}` : words);
  const each = (make) => runs.flatMap((run, n) => make(run, COLOURS[n % COLOURS.length]));
  const curve = (key, words, smooth) => each((run, colour) => [{
    name: named(run, words), colour, xs: run.curves.step, ys: smooth ? smoothed(run.curves[key], weight) : run.curves[key],
  }]);
  const judged = (key, words, other) => each((run, colour) => {
    const known = run.evaluations.filter((done) => done[key] !== null);
    const xs = known.map((done) => done.step), ys = known.map((done) => done[key]);
    return [{ name: named(run, words), colour: many ? colour : other, xs, ys, dots: true }];
  });
  charts.loss.show([...curve("train_loss", "training", true), ...judged("loss", "validation", COLOURS[1])]);
  charts.bleu.show(judged("bleu", "BLEU", COLOURS[0]));
  charts.rate.show(curve("learning_rate", "learning rate", false));
  charts.norm.show(curve("gradient_norm", "gradient norm", true));
  charts.speed.show(curve("tokens_per_s", "tokens a second", true));
  const { anatomy } = runs[chosen];
  charts.anatomy.show(Object.entries(anatomy.parts).map(([name, ys], n) => ({ name, colour: COLOURS[n], xs: anatomy.step, ys })));
}

// Words and tables.

function fill(id, ...children) {
  const section = $(id);
  section.hidden = children.length === 0;
  section.querySelector("div").replaceChildren(...children);
}

// Commands and names stand between backticks.
const words = (text) => text.split("`").map((part, n) => (n % 2 ? node("code", {}, part) : part));

function answer(each) {
  const made = node("details", each.alarm ? { class: "alarm" } : {},
    node("summary", {}, node("b", {}, each.question), ...words(each.verdict),
      each.sure === "likely" ? node("span", { class: "sure" }, " (likely)") : null));
  if (each.evidence.length) made.append(node("ul", {}, ...each.evidence.map((line) => node("li", {}, ...words(line)))));
  if (each.remedy) made.append(node("p", { class: "remedy" }, node("strong", {}, "What to do: "), ...words(each.remedy)));
  made.open = opened.has(each.key);
  made.addEventListener("toggle", () => (made.open ? opened.add(each.key) : opened.delete(each.key)));
  return made;
}

function table(caption, heads, rows) {
  const head = node("tr", {}, ...heads.map((text) => node("th", { scope: "col" }, text)));
  const body = rows.map((row) => node("tr", {}, ...row.map((cell) => node("td", {}, cell))));
  const made = node("table", { "aria-label": caption }, node("thead", {}, head), node("tbody", {}, ...body));
  return node("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, made);
}

function drawHeader(run) {
  document.title = `${run.run}: ${run.state}`;
  $("name").textContent = run.run;
  $("state").textContent = run.state;
  $("state").className = `badge ${STATES[run.state] || "warn"}`;
  $("progress").max = run.total_steps;
  $("progress").value = run.step;
  const last = run.evaluations[run.evaluations.length - 1];
  const numbers = {
    steps: `${count(run.step)} of ${count(run.total_steps)}`,
    taken: span(run.elapsed_s),
    left: run.left_s === null ? null : span(run.left_s),
    cost: run.cost && `${run.cost.spent.toFixed(2)} ${run.cost.currency}`,
    "validation loss": last && last.loss !== null ? last.loss.toFixed(3) : null,
    BLEU: last && last.bleu !== null ? last.bleu.toFixed(1) : null,
  };
  const known = Object.entries(numbers).filter(([, text]) => text);
  $("numbers").replaceChildren(...known.map(([name, text]) => node("div", {}, node("dt", {}, name), node("dd", {}, text))));
  $("short").replaceChildren(...run.short.map((text) => node("p", {}, ...words(text))));
  const { about } = run;
  $("about").textContent = `${about.workers.join(", ")}. ${about.device}, ${about.precision}, ` +
    `${(about.parameters / 1e6).toFixed(1)} M parameters. Dragoman ${about.version}, torch ${about.torch}.`;
}

function host(each) {
  const rate = (bits) => `${(bits / 1e6).toFixed(1)} Mbit/s`;
  const cpu = each.cpu_use[each.cpu_use.length - 1];
  const rows = [["processors", `${(100 * cpu).toFixed(0)} %`, meter(cpu)]];
  rows.push(["memory", `${bytes(each.memory_used_bytes)} of ${bytes(each.memory_bytes)}`, meter(each.memory_used_bytes / each.memory_bytes)]);
  for (const port of each.ports) {
    const busiest = Math.max(port.sent_bits_per_s, port.received_bits_per_s), nominal = port.nominal_bits_per_s;
    const words = `out ${rate(port.sent_bits_per_s)}, in ${rate(port.received_bits_per_s)}${nominal ? ` of ${rate(nominal)}` : ""}`;
    rows.push([port.name, words, nominal ? meter(busiest / nominal) : ""]);
  }
  for (const gpu of each.gpus) {
    const memory = `${bytes(gpu.memory_used_bytes)} of ${bytes(gpu.memory_bytes)}`;
    const words = `${(100 * gpu.use).toFixed(0)} % busy, ${memory}, ${gpu.power_w.toFixed(0)} W, ${gpu.temperature_c.toFixed(0)} °C, ` +
      `${gpu.clock_mhz.toFixed(0)} MHz${gpu.throttled.length ? `, lowered by ${gpu.throttled.join(" and ")}` : ""}`;
    rows.push([gpu.name, words, meter(gpu.use)]);
  }
  return node("div", {}, node("h3", {}, each.host), table(each.host, ["", "now", "use"], rows));
}

const meter = (share) => node("meter", { min: 0, max: 1, value: Math.min(1, share), "aria-label": `${(100 * share).toFixed(0)} %` });

function drawDetails(run) {
  fill("limits", ...run.limits.map(answer));
  fill("answers", ...run.answers.map(answer));
  const parts = Object.keys(run.anatomy.parts);
  const seconds = (value) => (value === null || value === undefined ? "-" : `${value.toFixed(3)} s`);
  const workers = run.workers.map((each) => [each.worker, seconds(each.ready_s), ...parts.map((part) => seconds(each.parts[part]))]);
  $("workers").replaceChildren(...(workers.length ? [table("Each worker's part in a step", ["worker", "ready after", ...parts], workers)] : []));
  fill("hosts", ...run.hosts.map(host));
  const saved = new Map(run.checkpoints.map((each) => [each.step, each]));
  const judged = new Map(run.evaluations.map((each) => [each.step, each]));
  const steps = [...new Set([...saved.keys(), ...judged.keys()])].sort((a, b) => b - a);
  const cell = (value, digits) => (value === null || value === undefined ? "-" : value.toFixed(digits));
  const rows = steps.slice(0, 60).map((step) => {
    const done = judged.get(step) || {}, file = saved.get(step);
    return [count(step), cell(done.loss, 3), cell(done.bleu, 1), cell(done.chrf, 1), file ? bytes(file.bytes) : "-", file ? `${file.stall_s.toFixed(2)} s` : "-"];
  });
  fill("checkpoints", ...(rows.length ? [table("Evaluations and checkpoints", ["step", "validation loss", "BLEU", "chrF", "checkpoint", "stood still"], rows)] : []));
  const last = run.samples[run.samples.length - 1];
  fill("samples", ...(last ? last.samples : []).map((sample, n) => node("div", {},
    node("p", {}, sample.source), node("blockquote", {},
      ...run.samples.map((each) => node("div", {}, node("span", { class: "sure" }, `${count(each.step)}: `), each.samples[n] ? each.samples[n].translation : "")),
      node("div", {}, node("span", { class: "sure" }, "reference: "), sample.reference)))));
  const told = [...run.incidents].reverse().map((each) => [new Date(each.at_s * 1000).toISOString().replace("T", " ").slice(0, 19), each.text]);
  fill("incidents", ...(told.length ? [table("What happened", ["when (UTC)", ""], told)] : []));
  document.querySelectorAll("#incidents td:last-child").forEach((each) => each.classList.add("text"));
}

function draw() {
  $("runs").hidden = runs.length < 2;
  $("runs").replaceChildren(...runs.map((run, n) => {
    const button = node("button", { type: "button", "aria-pressed": n === chosen }, run.run);
    button.addEventListener("click", () => { chosen = n; draw(); });
    return button;
  }));
  drawHeader(runs[chosen]);
  drawDetails(runs[chosen]);
  drawCharts();
}

function take(content) {
  runs = content.runs;
  chosen = Math.min(chosen, runs.length - 1);
  draw();
}

$("smoothing").addEventListener("input", drawCharts);
$("whole").addEventListener("click", () => setZoom(null));
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((each) => { each.open = true; }));

const content = JSON.parse($("data").textContent);
take(content);
if (content.live) new EventSource(`events${location.search}`).addEventListener("message", (event) => take(JSON.parse(event.data)));
