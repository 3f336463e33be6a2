"use strict";
// Draws the summaries that run_summary.py makes. Text of a run is inserted as text, never as markup.

const $ = (id) => document.getElementById(id);
const COLOURS = Array.from({ length: 13 }, (_, n) => `var(--c${n + 1})`);
const SENTENCES = { how: "How it goes", limit: "What limits it", advice: "What to do" };
const BADGES = { running: "good", finished: "good", "stopped early": "good", interrupted: "warn", "not responding": "bad", failed: "bad", diverged: "bad" };
let runs = [];
let comparison = null; // Of several runs.
let selected = 0; // Index of the run whose details are shown.
// Horizontal axes. All charts of an axis show the same range, [from, to]; null shows all.
const AXES = {
  step: { zoom: null, label: (x) => `step ${formatCount(x)}`, tick: (x) => formatShort(x) },
  time: { zoom: null, label: (x) => formatSpan(x), tick: (x, range) => formatTimeTick(x, range) },
};
const openAnswers = new Set(); // Keys of the answers that the reader has opened.

function element(tag, attributes = {}, ...children) {
  const created = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) created.setAttribute(name, value);
  created.append(...children.filter((child) => child !== null));
  return created;
}

function svgElement(tag, attributes = {}, text = "") {
  const created = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) created.setAttribute(name, value);
  created.textContent = text;
  return created;
}

// Number formats.

const formatCount = (number) => Math.round(number).toLocaleString("en");

function formatShort(number) {
  if (number === 0) return "0";
  const magnitude = Math.abs(number);
  if (magnitude >= 1e6) return `${+(number / 1e6).toPrecision(3)}M`;
  if (magnitude >= 1e4) return `${+(number / 1e3).toPrecision(3)}k`;
  return magnitude < 1e-3 ? number.toExponential(1) : `${+number.toPrecision(4)}`;
}

function formatSpan(seconds) {
  if (seconds < 60) return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  const minutes = Math.floor(Math.round(seconds) / 60);
  const twoDigits = (number) => String(number).padStart(2, "0");
  if (minutes < 60) return `${minutes} min ${twoDigits(Math.round(seconds) % 60)} s`;
  return `${Math.floor(minutes / 60)} h ${twoDigits(minutes % 60)} min`;
}

function formatBytes(number) {
  for (const unit of ["B", "kB", "MB", "GB"]) {
    if (number < 1000) return unit === "B" ? `${number} B` : `${number.toFixed(1)} ${unit}`;
    number /= 1000;
  }
  return `${number.toFixed(1)} TB`;
}

// Ticks of a time axis are round numbers of its unit.
const timeUnit = (range) => (range > 7200 ? [3600, "h"] : range > 600 ? [60, "min"] : [1, "s"]);

function formatTimeTick(seconds, range) {
  const [unit, name] = timeUnit(range);
  return `${+(seconds / unit).toPrecision(3)} ${name}`;
}

const isSynthesis = (run) => run.kind === "synthesis";

const formatPercent = (share) => `${(100 * share).toFixed(0)} %`;

function axisTicks(low, high, maxTicks) {
  const minInterval = (high - low) / maxTicks || 1;
  const power = 10 ** Math.floor(Math.log10(minInterval));
  const interval = [1, 2, 5, 10].map((factor) => factor * power).find((each) => each >= minInterval);
  const ticks = [];
  for (let n = Math.ceil(low / interval); n * interval <= high + interval * 1e-9; n += 1) ticks.push(n * interval);
  return ticks;
}

function smoothed(values, weight) {
  let mean = null;
  return values.map((value) => {
    if (value === null) return null;
    mean = mean === null ? value : weight * mean + (1 - weight) * value;
    return mean;
  });
}

// A chart over steps or time. Its series are lines, or stacked areas.

class Chart {
  constructor(parent, title, unit, stacked = false, axis = AXES.step) {
    Object.assign(this, { title, unit, stacked, axis, series: [], cursor: null, selection: null });
    this.svg = svgElement("svg", { role: "img", tabindex: "0" });
    this.legend = element("ul", { class: "legend" });
    this.output = element("output", { "aria-live": "polite" });
    parent.append(element("div", { class: "chart" }, element("h3", {}, title), this.svg, this.legend, this.output));
    this.svg.addEventListener("pointermove", (event) => this.onPointerMove(event));
    this.svg.addEventListener("pointerleave", () => { if (!this.selection) this.showValues(null); });
    this.svg.addEventListener("pointerdown", (event) => {
      this.svg.setPointerCapture(event.pointerId);
      this.selection = [this.stepAt(event), this.stepAt(event)];
    });
    this.svg.addEventListener("pointerup", () => {
      const [from, to] = [...(this.selection || [0, 0])].sort((a, b) => a - b);
      this.selection = null;
      if (to - from > (this.lastStep - this.firstStep) * 0.02) setZoom(this.axis, [from, to]);
      else this.draw();
    });
    this.svg.addEventListener("dblclick", () => setZoom(this.axis, null));
    this.svg.addEventListener("keydown", (event) => this.onKeyDown(event));
    new ResizeObserver(() => this.draw()).observe(this.svg);
  }

  setSeries(series) {
    this.series = series.filter((each) => each.xs.length > 0);
    this.legend.replaceChildren(...this.series.map((each) => {
      const swatch = element("i");
      swatch.style.background = each.colour;
      return element("li", {}, swatch, each.name);
    }));
    this.draw();
  }

  draw() {
    const width = this.svg.clientWidth || 480, height = this.svg.clientHeight || 240;
    const ends = this.series.flatMap((each) => [each.xs[0], each.xs[each.xs.length - 1]]);
    this.svg.replaceChildren();
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    if (ends.length === 0) {
      this.svg.append(svgElement("text", { x: 10, y: 24 }, "No data yet."));
      this.svg.setAttribute("aria-label", `${this.title}: no data yet.`);
      return;
    }
    const [firstStep, lastStep] = this.axis.zoom || [Math.min(0, ...ends), Math.max(...ends)];
    const lines = this.toPoints();
    const margin = { left: 48, right: 8, top: 8, bottom: 20 };
    const plotWidth = width - margin.left - margin.right, plotHeight = height - margin.top - margin.bottom;
    const [low, high] = this.valueRange(lines, firstStep, lastStep);
    const toX = (step) => margin.left + (step - firstStep) / (lastStep - firstStep || 1) * plotWidth;
    const toY = (value) => height - margin.bottom - (value - low) / (high - low) * plotHeight;
    Object.assign(this, { firstStep, lastStep, margin, width });
    for (const value of axisTicks(low, high, 5)) {
      this.svg.append(svgElement("line", { class: "grid", x1: margin.left, x2: width - margin.right, y1: toY(value), y2: toY(value) }));
      this.svg.append(svgElement("text", { x: margin.left - 6, y: toY(value) + 4, "text-anchor": "end" }, formatShort(value)));
    }
    const range = lastStep - firstStep, [unit] = this.axis === AXES.time ? timeUnit(range) : [1];
    for (const tick of axisTicks(firstStep / unit, lastStep / unit, Math.max(2, width / 110))) {
      const step = tick * unit, anchor = toX(step) > width - 24 ? "end" : "middle";
      this.svg.append(svgElement("text", { x: toX(step), y: height - 5, "text-anchor": anchor }, this.axis.tick(step, range)));
    }
    const clipId = `clip-${this.title.replace(/\W/g, "")}`;
    const clip = svgElement("clipPath", { id: clipId });
    clip.append(svgElement("rect", { x: margin.left - 4, y: 0, width: Math.max(0, plotWidth) + 8, height })); // Dots are 3 wide.
    this.svg.append(clip);
    const plot = svgElement("g", { "clip-path": `url(#${clipId})` });
    this.svg.append(plot);
    lines.forEach((line) => this.drawLine(plot, line, toX, toY));
    this.drawCursor(plot, toX, height);
    this.setDescription();
  }

  valueRange(lines, firstStep, lastStep) {
    const visible = lines.flatMap((each) => each.points.filter(([x]) => x >= firstStep && x <= lastStep).map(([, y]) => y));
    if (!visible.length) return [0, 1];
    const low = this.stacked ? 0 : Math.min(...visible);
    let high = Math.max(...visible);
    if (!this.stacked && visible.length > 50) {
      // A few outliers, such as the first losses, would flatten all other values: they are cut off at the top.
      const usual = [...visible].sort((a, b) => a - b)[Math.floor(0.97 * visible.length)];
      high = Math.min(high, usual + 0.25 * (usual - low));
    }
    return low === high ? [low - Math.abs(low) * 0.1 - 1e-9, high + Math.abs(high) * 0.1 + 1e-9] : [low, high];
  }

  toPoints() {
    if (!this.stacked) {
      return this.series.map((each) => ({ ...each, points: each.xs.map((x, n) => [x, each.ys[n]]).filter(([, y]) => y !== null) }));
    }
    let sums = this.series[0].xs.map(() => 0);
    return this.series.map((each) => {
      const base = sums;
      sums = sums.map((sum, n) => sum + (each.ys[n] || 0));
      const top = sums;
      return { ...each, points: each.xs.map((x, n) => [x, top[n]]), base: each.xs.map((x, n) => [x, base[n]]) };
    });
  }

  drawLine(plot, line, toX, toY) {
    const path = (points) => points.map(([x, y], n) => `${n ? "L" : "M"}${toX(x).toFixed(1)},${toY(y).toFixed(1)}`).join("");
    if (this.stacked) {
      const outline = `${path(line.points)}${path([...line.base].reverse()).replace("M", "L")}Z`;
      plot.append(svgElement("path", { d: outline, fill: line.colour, "fill-opacity": 0.75, stroke: line.colour, "stroke-width": 0.5 }));
      return;
    }
    plot.append(svgElement("path", {
      d: path(line.points), fill: "none", stroke: line.colour, "stroke-width": line.dots ? 2 : 1.4, "stroke-linejoin": "round",
    }));
    if (line.dots && line.points.length < 80) {
      line.points.forEach(([x, y]) => plot.append(svgElement("circle", { cx: toX(x), cy: toY(y), r: 3, fill: line.colour })));
    }
  }

  drawCursor(plot, toX, height) {
    if (this.selection) {
      const [from, to] = [...this.selection].sort((a, b) => a - b);
      plot.append(svgElement("rect", { class: "selection", x: toX(from), y: 0, width: toX(to) - toX(from), height }));
    }
    if (this.cursor !== null) plot.append(svgElement("line", { class: "cursor", x1: toX(this.cursor), x2: toX(this.cursor), y1: 0, y2: height }));
  }

  setDescription() {
    const ranges = this.series.map((each) => {
      const values = each.ys.filter((value) => value !== null);
      return `${each.name} from ${formatShort(values[0] ?? 0)} to ${formatShort(values[values.length - 1] ?? 0)}`;
    });
    this.svg.setAttribute("aria-label", `${this.title}: ${ranges.join("; ")}.`);
  }

  showValues(step) {
    this.cursor = step;
    const values = step === null ? [] : this.series.map((each) => {
      let nearest = 0;
      each.xs.forEach((x, n) => { if (Math.abs(x - step) < Math.abs(each.xs[nearest] - step)) nearest = n; });
      if (this.series.length === 1 || nearest || each.xs.length === 1) this.cursor = each.xs[nearest];
      return each.ys[nearest] === null ? "" : `${each.name} ${formatShort(each.ys[nearest])}${this.unit}`;
    }).filter(Boolean);
    this.output.textContent = step === null ? "" : `${this.axis.label(this.cursor)}: ${values.join(", ")}`;
    this.draw();
  }

  stepAt(event) {
    const x = event.clientX - this.svg.getBoundingClientRect().left;
    const share = (x - this.margin.left) / (this.width - this.margin.left - this.margin.right);
    return this.firstStep + Math.min(1, Math.max(0, share)) * (this.lastStep - this.firstStep);
  }

  onPointerMove(event) {
    if (!this.series.length) return;
    const step = this.stepAt(event);
    if (this.selection) this.selection[1] = step;
    this.showValues(step);
  }

  onKeyDown(event) {
    if (!this.series.length) return;
    const range = this.lastStep - this.firstStep, xs = this.series[0].xs;
    const step = this.cursor ?? this.firstStep;
    const actions = {
      ArrowRight: () => this.showValues(xs.find((x) => x > step) ?? xs[xs.length - 1]),
      ArrowLeft: () => this.showValues([...xs].reverse().find((x) => x < step) ?? xs[0]),
      "+": () => setZoom(this.axis, [Math.max(this.firstStep, step - range / 4), Math.min(this.lastStep, step + range / 4)]),
      "-": () => setZoom(this.axis, [step - range, step + range]),
      0: () => setZoom(this.axis, null),
      Escape: () => setZoom(this.axis, null),
    };
    if (actions[event.key]) {
      event.preventDefault();
      actions[event.key]();
    }
  }
}

function setZoom(axis, range) {
  const last = Math.max(1, ...runs.map((run) => (axis === AXES.step ? run.step : run.elapsed_s)));
  axis.zoom = range && [Math.max(0, range[0]), Math.min(last, range[1])];
  if (axis.zoom && axis.zoom[1] - axis.zoom[0] >= last) axis.zoom = null;
  $("reset-zoom").hidden = Object.values(AXES).every((each) => each.zoom === null);
  Object.values(charts).forEach((chart) => chart.draw());
}

const charts = {
  comparedBySteps: new Chart($("comparison-charts"), "Validation loss over steps", ""),
  comparedByTime: new Chart($("comparison-charts"), "Validation loss over time", "", false, AXES.time),
  loss: new Chart($("curves"), "Loss (nats per target token)", ""),
  bleu: new Chart($("curves"), "BLEU", ""),
  learningRate: new Chart($("curves"), "Learning rate", ""),
  gradientNorm: new Chart($("curves"), "Gradient norm", ""),
  throughput: new Chart($("curves"), "Throughput (tokens/s)", ""),
  stepBreakdown: new Chart($("step-breakdown"), "Step time (s)", " s", true),
};

function drawCharts() {
  const weight = Number($("smoothing").value), several = runs.length > 1;
  const label = (run, name) => (several ? `${run.run}: ${name}` : name);
  const forEachRun = (toSeries) => runs.map((run, n) => toSeries(run, COLOURS[n % COLOURS.length]));
  const curve = (key, name, smooth) => forEachRun((run, colour) => ({
    name: label(run, name), colour, xs: run.curves.step, ys: smooth ? smoothed(run.curves[key], weight) : run.curves[key],
  }));
  const scores = (key, name, singleColour, x = "step") => forEachRun((run, colour) => {
    const known = run.evaluations.filter((evaluation) => evaluation[key] !== null);
    const xs = known.map((evaluation) => evaluation[x]), ys = known.map((evaluation) => evaluation[key]);
    return { name: name ? label(run, name) : run.run, colour: several ? colour : singleColour, xs, ys, dots: true };
  });
  if (several) {
    charts.comparedBySteps.setSeries(scores("loss", "", COLOURS[0]));
    charts.comparedByTime.setSeries(scores("loss", "", COLOURS[0], "elapsed_s"));
  }
  // Sets beside the validation set, of --also-evaluate.
  const otherSets = (key, firstColour) => runs.flatMap((run, n) => {
    const names = [...new Set(run.evaluations.flatMap((evaluation) => Object.keys(evaluation.sets)))];
    return names.map((name, m) => {
      const known = run.evaluations.filter((evaluation) => (evaluation.sets[name]?.[key] ?? null) !== null);
      const colour = COLOURS[(firstColour + runs.length * m + n) % COLOURS.length];
      return { name: label(run, name), colour, xs: known.map((each) => each.step), ys: known.map((each) => each.sets[name][key]), dots: true };
    });
  });
  const afterRuns = several ? runs.length : 2;
  charts.loss.setSeries([...curve("train_loss", "training", true), ...scores("loss", "validation", COLOURS[1]), ...otherSets("loss", afterRuns)]);
  charts.bleu.setSeries([...scores("bleu", "BLEU", COLOURS[0]), ...otherSets("bleu", afterRuns)]);
  charts.learningRate.setSeries(curve("learning_rate", "learning rate", false));
  charts.gradientNorm.setSeries(curve("gradient_norm", "gradient norm", true));
  charts.throughput.setSeries(curve("tokens_per_s", runs.every(isSynthesis) ? "lines/s" : "tokens/s", true));
  const breakdown = runs[selected].step_breakdown;
  charts.stepBreakdown.setSeries(Object.entries(breakdown.parts).map(([name, ys], n) => ({ name, colour: COLOURS[n], xs: breakdown.step, ys })));
}

// Text and tables.

function fillSection(id, ...children) {
  const section = $(id);
  section.hidden = children.length === 0;
  section.querySelector("div").replaceChildren(...children);
}

// Commands and names are between backticks.
// A number and its percent sign stay on one line.
const withCode = (text) => text.replaceAll(" %", "\u00a0%").split("`").map((part, n) => (n % 2 ? element("code", {}, part) : part));

function answerDetails(answer) {
  const details = element("details", answer.is_warning ? { class: "warning" } : {},
    element("summary", {}, element("b", {}, answer.question), ...withCode(answer.text),
      answer.confidence === "likely" ? element("span", { class: "note" }, " (likely)") : null));
  if (answer.evidence.length) details.append(element("ul", {}, ...answer.evidence.map((line) => element("li", {}, ...withCode(line)))));
  if (answer.remedy) details.append(element("p", { class: "remedy" }, element("strong", {}, "What to do: "), ...withCode(answer.remedy)));
  details.open = openAnswers.has(answer.key);
  details.addEventListener("toggle", () => (details.open ? openAnswers.add(answer.key) : openAnswers.delete(answer.key)));
  return details;
}

function table(caption, columns, rows, kind = "stacked") {
  const head = element("tr", { role: "row" }, ...columns.map((text) => element("th", { role: "columnheader", scope: "col" }, text)));
  const cell = (content, n) => element("td", { role: "cell", "data-label": columns[n] }, content);
  const body = rows.map((row) => element("tr", { role: "row" }, ...row.map(cell)));
  // Blocks, as narrow screens show them, have no roles of their own.
  const content = element("table", { class: kind, role: "table", "aria-label": caption },
    element("thead", { role: "rowgroup" }, head), element("tbody", { role: "rowgroup" }, ...body));
  return element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, content);
}

function drawOverview({ overview }) {
  const warned = runs[selected].diagnoses.concat(runs[selected].answers).some((answer) => answer.is_warning);
  const sentences = Object.entries(SENTENCES).map(([key, label]) =>
    element("p", key === "limit" && warned ? { class: "warning" } : {}, element("b", {}, label), ...withCode(overview[key])));
  const more = overview.more.map((text) => element("li", {}, ...withCode(text)));
  const others = more.length ? [element("b", {}, "Also"), element("ul", {}, ...more)] : [];
  $("overview").replaceChildren(...sentences, ...others);
}

// One bar for the whole run; the list below it has the numbers, and is what screen readers read.
function timeBar(run) {
  const total = run.elapsed_s || 1;
  const used = Object.entries(run.time_use).map(([name, seconds], n) => ({ name, seconds, share: seconds / total, colour: COLOURS[n] }))
    .filter((each) => each.share > 0.0005);
  if (!used.length) return [];
  const bar = element("div", { class: "time-bar", "aria-hidden": "true" }, ...used.map((each) => {
    const part = element("span", { title: `${each.name}: ${formatSpan(each.seconds)}` }, element("span", {}, each.name));
    part.style.background = each.colour;
    part.style.flex = `${each.share} 1 0`;
    return part;
  }));
  const list = element("ul", { class: "time-legend" }, ...[...used].sort((a, b) => b.seconds - a.seconds).map((each) => {
    const swatch = element("i", { "aria-hidden": "true" });
    swatch.style.background = each.colour;
    const share = each.share < 0.01 ? "< 1 %" : formatPercent(each.share);
    return element("li", {}, swatch, element("b", {}, each.name), element("span", {}, formatSpan(each.seconds)), element("em", {}, share));
  }));
  const idle = run.between_sessions_s >= 1
    ? [element("p", { class: "note" }, `Not counted: ${formatSpan(run.between_sessions_s)} between sessions, in which the run did not run.`)] : [];
  return [bar, list, ...idle];
}

function drawComparison() {
  $("comparison").hidden = comparison === null;
  if (comparison === null) return;
  $("preference").replaceChildren(...withCode(comparison.preference));
  const rows = comparison.rows.map((row) => [row.name, ...row.values])
    .concat(comparison.settings.map((row) => [element("code", {}, row.name), ...row.values]));
  $("comparison-tables").replaceChildren(table("Comparison", ["", ...comparison.runs], rows, "compared"));
  $("topics").replaceChildren(...comparison.topics.flatMap((each) =>
    [element("dt", {}, each.topic), element("dd", {}, ...withCode(each.text))]));
}

function drawHeader(run) {
  document.title = `${run.run}: ${run.state}`;
  $("name").textContent = run.run;
  $("state").textContent = run.state;
  $("state").className = `badge ${BADGES[run.state] || "warn"}`;
  $("progress").max = run.total_steps;
  $("progress").value = run.step;
  const last = run.evaluations[run.evaluations.length - 1];
  const numbers = {
    [isSynthesis(run) ? "lines" : "steps"]: `${formatCount(run.step)} of ${formatCount(run.total_steps)}`,
    elapsed: formatSpan(run.elapsed_s),
    left: run.remaining,
    cost: run.cost && `${run.cost.spent.toFixed(2)} ${run.cost.currency}`,
    "validation loss": last && last.loss !== null ? last.loss.toFixed(3) : null,
    BLEU: last && last.bleu !== null ? last.bleu.toFixed(1) : null,
  };
  const known = Object.entries(numbers).filter(([, text]) => text);
  $("numbers").replaceChildren(...known.map(([name, text]) => element("div", {}, element("dt", {}, name), element("dd", {}, text))));
  drawOverview(run);
  const { about } = run;
  $("about").textContent = isSynthesis(run)
    ? `${about.workers.join(", ")}. ${about.device}. ${about.model}, ${about.languages}. Dragoman ${about.version}.`
    : `${about.workers.join(", ")}. ${about.device}, ${about.precision}, ` +
    `${(about.parameters / 1e6).toFixed(1)} M parameters. Dragoman ${about.version}, torch ${about.torch}.`;
}

const meter = (share) => element("meter", { min: 0, max: 1, value: Math.min(1, share), "aria-label": formatPercent(share) });

function hostTable(host) {
  const formatRate = (bits) => `${(bits / 1e6).toFixed(1)} Mbit/s`;
  const cpuUse = host.cpu_use[host.cpu_use.length - 1];
  const memory = (device) => `${formatBytes(device.memory_used_bytes)} of ${formatBytes(device.memory_bytes)}`;
  const rows = [
    ["CPU", formatPercent(cpuUse), meter(cpuUse)],
    ["memory", memory(host), meter(host.memory_used_bytes / host.memory_bytes)],
  ];
  for (const link of host.interfaces) {
    const nominal = link.nominal_bits_per_s, busiest = Math.max(link.sent_bits_per_s, link.received_bits_per_s);
    const speed = nominal ? `${formatRate(nominal)} nominal` : "link speed unknown";
    const traffic = `${formatRate(link.sent_bits_per_s)} out, ${formatRate(link.received_bits_per_s)} in, ${speed}`;
    rows.push([link.name, traffic, nominal ? meter(busiest / nominal) : ""]);
  }
  for (const gpu of host.gpus) {
    const throttled = gpu.throttled.length ? `, throttled: ${gpu.throttled.join(", ")}` : "";
    const readings = `${formatPercent(gpu.use)} utilisation, ${memory(gpu)}, ${gpu.power_w.toFixed(0)} W, ` +
      `${gpu.temperature_c.toFixed(0)} °C, ${gpu.clock_mhz.toFixed(0)} MHz${throttled}`;
    rows.push([gpu.name, readings, meter(gpu.use)]);
  }
  return element("div", {}, element("h3", {}, host.host), table(host.host, ["", "latest reading", "use"], rows, "dense"));
}

function workerTable(run) {
  const parts = Object.keys(run.step_breakdown.parts);
  const seconds = (value) => (value === null || value === undefined ? "-" : `${value.toFixed(3)} s`);
  const rows = run.workers.map((each) => [each.worker, seconds(each.ready_s), ...parts.map((part) => seconds(each.parts[part]))]);
  return rows.length ? [table("Step time by worker", ["worker", "time until ready", ...parts], rows)] : [];
}

function checkpointTable(run) {
  const saved = new Map(run.checkpoints.map((each) => [each.step, each]));
  const evaluated = new Map(run.evaluations.map((each) => [each.step, each]));
  const steps = [...new Set([...saved.keys(), ...evaluated.keys()])].sort((a, b) => b - a);
  const number = (value, digits) => (value === null || value === undefined ? "-" : value.toFixed(digits));
  const rows = steps.slice(0, 60).map((step) => {
    const scores = evaluated.get(step) || {}, checkpoint = saved.get(step);
    return [
      formatCount(step), number(scores.loss, 3), number(scores.bleu, 1), number(scores.chrf, 1),
      checkpoint ? formatBytes(checkpoint.bytes) : "-", checkpoint ? `${checkpoint.stall_s.toFixed(2)} s` : "-",
    ];
  });
  const columns = ["step", "vali\u00addation loss", "BLEU", "chrF", "check\u00adpoint size", "check\u00adpoint stall"];
  return rows.length ? [table("Evaluations and checkpoints", columns, rows, "dense")] : [];
}

function evaluationSetTable(run) {
  const number = (value, digits) => (value === null ? "-" : value.toFixed(digits));
  const rows = run.evaluation_sets.map((each) =>
    [each.name, each.evaluation, formatCount(each.step), number(each.loss, 3), number(each.bleu, 1), number(each.chrf, 1)]);
  return rows.length ? [table("Evaluation sets", ["set", "evaluation", "step", "loss", "BLEU", "chrF"], rows, "dense")] : [];
}

function sampleBlocks(run) {
  const last = run.samples[run.samples.length - 1];
  const line = (label, text) => element("div", {}, element("span", { class: "note" }, `${label}: `), text);
  return (last ? last.samples : []).map((sample, n) => element("div", {}, element("p", {}, sample.source), element("blockquote", {},
    ...run.samples.map((each) => line(`step ${formatCount(each.step)}`, each.samples[n] ? each.samples[n].translation || "(empty)" : "-")),
    line("reference", sample.reference))));
}

function incidentTable(run) {
  const time = (at_s) => new Date(at_s * 1000).toISOString().replace("T", " ").slice(0, 19);
  const rows = [...run.incidents].reverse().map((each) => [time(each.at_s), each.text]);
  return rows.length ? [table("Event log", ["time (UTC)", "event"], rows)] : [];
}

function drawDetails(run) {
  fillSection("time-use", ...timeBar(run));
  fillSection("diagnoses", ...run.diagnoses.map(answerDetails));
  fillSection("answers", ...run.answers.map(answerDetails));
  $("workers").replaceChildren(...workerTable(run));
  fillSection("hosts", ...run.hosts.map(hostTable));
  fillSection("evaluation-sets", ...evaluationSetTable(run));
  fillSection("checkpoints", ...checkpointTable(run));
  fillSection("samples", ...sampleBlocks(run));
  fillSection("incidents", ...incidentTable(run));
  document.querySelectorAll("#incidents td:last-child, #incidents th:last-child").forEach((cell) => cell.classList.add("text"));
}

// A synthesis has lines instead of steps, and no curves of training.
function showKind() {
  const synthetic = runs.every(isSynthesis);
  $("answers-title").textContent = synthetic ? "Answers" : "Eleven answers";
  $("step-breakdown").closest("section").hidden = synthetic;
  for (const chart of Object.values(charts)) chart.svg.parentElement.hidden = synthetic && chart !== charts.throughput;
  charts.throughput.svg.parentElement.querySelector("h3").textContent = `Throughput (${synthetic ? "lines" : "tokens"}/s)`;
}

function draw() {
  $("runs").hidden = runs.length < 2;
  $("runs").replaceChildren(...runs.map((run, n) => {
    const button = element("button", { type: "button", "aria-pressed": n === selected }, run.run);
    button.addEventListener("click", () => { selected = n; draw(); });
    return button;
  }));
  drawComparison();
  drawHeader(runs[selected]);
  drawDetails(runs[selected]);
  drawCharts();
  showKind();
}

function update(content) {
  runs = content.runs;
  comparison = content.comparison;
  selected = Math.min(selected, runs.length - 1);
  draw();
}

$("smoothing").addEventListener("input", drawCharts);
$("reset-zoom").addEventListener("click", () => Object.values(AXES).forEach((axis) => setZoom(axis, null)));
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((details) => { details.open = true; }));

const content = JSON.parse($("data").textContent);
update(content);
if (content.live) new EventSource(`events${location.search}`).addEventListener("message", (event) => update(JSON.parse(event.data)));
