// The page: sends what is typed, shows sentences as they come. Text is only ever put in as text, never as markup.

const PAUSE_MS = 250; // after the last key before a translation begins
const REMEMBER_AFTER_MS = 1500; // without a change, a translation is worth remembering
const HISTORY_LENGTH = 30;
const DOUBTS = [0.3, 0.5, 0.7]; // below these, a word is marked ever more faintly

const $ = (id) => document.getElementById(id);
const page = {
  source: $("source"), target: $("target"), from: $("source-language"), to: $("target-language"), model: $("model"),
  swap: $("swap"), copy: $("copy"), clear: $("clear"), count: $("count"), status: $("status"), file: $("file"),
  alternatives: $("alternatives"), confidence: $("confidence"), history: $("history"), list: $("history-list"),
};

let languages = [];
let models = [];
let settings = {};
let sentences = []; // of the translation on show: source, text, glue, alternatives, words
let running = null; // the request under way
let pause, settled;

const read = (key, fallback) => { try { return JSON.parse(localStorage.getItem(key)) ?? fallback; } catch { return fallback; } };
const write = (key, value) => { try { localStorage.setItem(key, JSON.stringify(value)); } catch { /* a full or closed store costs only comfort */ } };

async function begin() {
  applyTheme(read("theme", null));
  page.confidence.checked = read("doubts", false);
  page.target.classList.toggle("doubts", page.confidence.checked);
  [languages, models, settings] = await Promise.all(["languages", "models", "frontend/settings"].map(async (path) => (await fetch(path)).json()));
  $("key-form").hidden = !settings.asksForKeys || Boolean(sessionStorage.getItem("key"));
  page.file.accept = settings.fileFormats.map((form) => "." + form).join(",");
  $("engine").textContent = models.map((model) => `${model.name} (${model.compute_type}, beam ${model.beam})`).join(", ");
  const sources = languages.filter((language) => language.targets.length);
  fill(page.from, [["auto", "Detect language"], ...sources.map((language) => [language.code, nameOf(language)])]);
  const last = read("direction", [sources[0].code, sources[0].targets[0]]);
  page.from.value = sources.some((language) => language.code === last[0]) || last[0] === "auto" ? last[0] : sources[0].code;
  offerTargets(last[1]);
  showCount();
}

function nameOf(language) {
  try { return new Intl.DisplayNames([navigator.language], { type: "language" }).of(language.code); } catch { return language.name; }
}

function fill(select, entries) {
  select.replaceChildren(...entries.map(([value, text]) => new Option(text, value)));
}

function offerTargets(wanted = page.to.value) {
  const codes = page.from.value === "auto"
    ? languages.filter((language) => models.some((model) => model.target === language.code)).map((language) => language.code)
    : languages.find((language) => language.code === page.from.value).targets;
  fill(page.to, codes.map((code) => [code, nameOf(languages.find((language) => language.code === code))]));
  page.to.value = codes.includes(wanted) ? wanted : codes[0];
  const fitting = fittingModels(page.from.value, page.to.value);
  fill(page.model, fitting.map((model) => [model.name, model.name]));
  page.model.hidden = fitting.length < 2;
  page.swap.disabled = fittingModels(page.to.value, page.from.value).length === 0;
  write("direction", [page.from.value, page.to.value]);
}

const fittingModels = (from, to) => models.filter((model) => model.source === from && model.target === to);

function showCount() {
  const length = page.source.value.length;
  page.count.textContent = length ? `${length.toLocaleString()} / ${settings.maxCharacters.toLocaleString()}` : "";
  page.count.classList.toggle("over", length > settings.maxCharacters);
  page.clear.hidden = length === 0;
}

function say(message, isBad = false) {
  page.status.textContent = message;
  page.status.classList.toggle("bad", isBad);
}

function soon() {
  showCount();
  clearTimeout(pause);
  pause = setTimeout(translate, PAUSE_MS);
}

async function translate() {
  clearTimeout(pause);
  clearTimeout(settled);
  running?.abort();
  closeAlternatives();
  const text = page.source.value;
  if (!text.trim()) {
    sentences = [];
    show();
    say("");
    return;
  }
  const request = (running = new AbortController());
  page.target.classList.add("busy");
  page.target.setAttribute("aria-busy", "true");
  try {
    await receive(text, request.signal);
    settled = setTimeout(remember, REMEMBER_AFTER_MS);
  } catch (problem) {
    if (problem.name !== "AbortError") say(problem.message, true);
  }
  if (running === request) {
    page.target.classList.remove("busy");
    page.target.removeAttribute("aria-busy");
  }
}

async function receive(text, signal) {
  const fields = { q: text, source: page.from.value, target: page.to.value, alternatives: 5, confidence: page.confidence.checked };
  if (!page.model.hidden) fields.model = page.model.value;
  const answer = await ask("stream", JSON.stringify(fields), { "content-type": "application/json" }, signal);
  let head = null;
  let ended = false;
  for await (const line of linesOf(answer.body)) {
    if (line.done) {
      ended = true;
      const words = text.trim().split(/\s+/).length;
      const found = head.detected ? `${nameOf({ code: head.source, name: head.source })} found. ` : "";
      say(`${found}${words.toLocaleString()} ${words === 1 ? "word" : "words"} in ${Math.max(1, Math.round(line.seconds * 1000)).toLocaleString()} ms by ${head.model}`);
    } else if (head === null) {
      head = line;
      sentences = [];
      page.target.replaceChildren();
      page.target.lang = line.target;
    } else {
      page.target.classList.remove("busy");
      sentences.push(line);
      append(line, sentences.length - 1);
    }
  }
  if (!ended) throw new Error("The translation broke off: try again in a moment.");
  if (sentences.length === 0) show();
  page.copy.hidden = sentences.length === 0;
}

async function ask(path, body, headers, signal) {
  const key = sessionStorage.getItem("key");
  if (key) headers.authorization = `Bearer ${key}`;
  let answer;
  try {
    answer = await fetch(path, { method: "POST", body, headers, signal });
  } catch (problem) {
    throw problem.name === "AbortError" ? problem : new Error("The server cannot be reached: is it still running?");
  }
  if (answer.ok) return answer;
  if (answer.status === 401 || answer.status === 403) {
    sessionStorage.removeItem("key");
    $("key-form").hidden = false;
  }
  const problem = await answer.json().catch(() => ({ error: `The server answered ${answer.status}.` }));
  throw new Error(problem.error);
}

async function* linesOf(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) yield JSON.parse(line);
  }
}

function show() {
  page.target.replaceChildren();
  sentences.forEach(append);
  page.copy.hidden = sentences.length === 0;
}

function append(sentence, index) {
  if (sentence.text) {
    const span = document.createElement("span");
    span.className = "sentence";
    span.dataset.index = index;
    if (sentence.alternatives.length) {
      span.setAttribute("role", "button");
      span.setAttribute("aria-haspopup", "listbox");
      span.setAttribute("aria-expanded", "false");
      span.tabIndex = 0;
    }
    span.append(...(sentence.words.length ? wordsOf(sentence) : [sentence.text]));
    page.target.append(span);
  }
  page.target.append(sentence.glue);
}

function wordsOf(sentence) {
  return sentence.words.flatMap((word, place) => {
    const level = DOUBTS.findIndex((limit) => word.confidence < limit);
    const space = place ? " " : "";
    if (level < 0) return [space + word.text];
    const mark = document.createElement("span");
    mark.className = `d${DOUBTS.length - level}`;
    mark.title = `${Math.round(100 * word.confidence)} % sure`;
    mark.textContent = word.text;
    return [space, mark];
  });
}

function openAlternatives(span) {
  closeAlternatives();
  const sentence = sentences[span.dataset.index];
  const choices = [sentence.text, ...sentence.alternatives];
  page.alternatives.replaceChildren(...choices.map((text, place) => {
    const option = document.createElement("div");
    option.setAttribute("role", "option");
    option.setAttribute("aria-selected", String(place === 0));
    option.tabIndex = -1;
    option.dir = "auto";
    option.textContent = text;
    option.addEventListener("click", () => choose(span, sentence, place));
    return option;
  }));
  span.setAttribute("aria-expanded", "true");
  page.alternatives.hidden = false;
  const place = span.getClientRects()[0];
  const room = document.documentElement.clientWidth - page.alternatives.offsetWidth - 16;
  page.alternatives.style.left = `${Math.max(16, Math.min(place.left, room)) + scrollX}px`;
  page.alternatives.style.top = `${span.getBoundingClientRect().bottom + scrollY + 6}px`;
  page.alternatives.firstChild.focus({ preventScroll: true });
}

function choose(span, sentence, place) {
  if (place > 0) {
    const chosen = sentence.alternatives[place - 1];
    sentence.alternatives = [sentence.text, ...sentence.alternatives.filter((text) => text !== chosen)];
    sentence.text = chosen;
    sentence.words = []; // how sure the model is was said of another sentence
    show();
  }
  closeAlternatives();
  page.target.querySelector(`[data-index="${span.dataset.index}"]`)?.focus();
}

function closeAlternatives() {
  page.alternatives.hidden = true;
  page.target.querySelector('[aria-expanded="true"]')?.setAttribute("aria-expanded", "false");
}

const translation = () => sentences.map((sentence) => sentence.text + sentence.glue).join("");

async function copy() {
  try {
    await navigator.clipboard.writeText(translation());
  } catch { // only secure pages have a clipboard
    getSelection().selectAllChildren(page.target);
    document.execCommand("copy");
    getSelection().removeAllRanges();
  }
  page.copy.textContent = "Copied";
  setTimeout(() => { page.copy.textContent = "Copy"; }, 1500);
}

function swap() {
  if (page.swap.disabled) return;
  const [from, to, text] = [page.from.value, page.to.value, translation()];
  page.from.value = to;
  offerTargets(from);
  if (text) page.source.value = text;
  showCount();
  translate();
}

function remember() {
  const entry = { from: page.from.value, to: page.to.value, q: page.source.value, text: translation() };
  const earlier = read("history", []).filter((other) => !entry.q.startsWith(other.q) || other.to !== entry.to);
  write("history", [entry, ...earlier].slice(0, HISTORY_LENGTH));
}

function openHistory() {
  const entries = read("history", []);
  $("history-none").hidden = entries.length > 0;
  $("history-clear").hidden = entries.length === 0;
  page.list.replaceChildren(...entries.map((entry) => {
    const item = document.createElement("li");
    const button = document.createElement("button");
    button.type = "button";
    for (const text of [entry.q, entry.text]) {
      const part = document.createElement("span");
      part.dir = "auto";
      part.textContent = text;
      button.append(part);
    }
    button.addEventListener("click", () => recall(entry));
    item.append(button);
    return item;
  }));
  page.history.showModal();
}

function recall(entry) {
  page.history.close();
  if ([...page.from.options].some((option) => option.value === entry.from)) page.from.value = entry.from;
  offerTargets(entry.to);
  page.source.value = entry.q;
  showCount();
  translate();
}

async function translateFile(file) {
  const form = file.name.split(".").pop().toLowerCase();
  if (!settings.fileFormats.includes(form)) return say(`${file.name} is no ${settings.fileFormats.join(", ")} file.`, true);
  if (file.size > settings.maxFileBytes) return say(`${file.name} is larger than ${settings.maxFileBytes.toLocaleString()} bytes.`, true);
  if (page.from.value === "auto") return say("Choose the file's language first.", true);
  say(`Translating ${file.name} …`);
  const place = new URLSearchParams({ name: file.name, source: page.from.value, target: page.to.value });
  if (!page.model.hidden) place.set("model", page.model.value);
  try {
    const answer = await ask(`file?${place}`, file, { "content-type": "application/octet-stream" });
    const link = document.createElement("a");
    link.href = URL.createObjectURL(await answer.blob());
    link.download = file.name.replace(/(\.[^.]+)$/, `.${page.to.value}$1`);
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
    say(`${link.download} is ready.`);
  } catch (problem) {
    say(problem.message, true);
  }
}

function applyTheme(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
  $("theme").setAttribute("aria-pressed", String(isDark()));
}

function isDark() {
  const theme = document.documentElement.dataset.theme;
  return theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

page.source.addEventListener("input", soon);
page.from.addEventListener("change", () => { offerTargets(); translate(); });
page.to.addEventListener("change", () => { offerTargets(); translate(); });
page.model.addEventListener("change", translate);
page.swap.addEventListener("click", swap);
page.copy.addEventListener("click", copy);
page.clear.addEventListener("click", () => { page.source.value = ""; showCount(); translate(); page.source.focus(); });
page.confidence.addEventListener("change", () => {
  write("doubts", page.confidence.checked);
  page.target.classList.toggle("doubts", page.confidence.checked);
  translate();
});
page.target.addEventListener("click", (event) => {
  const span = event.target.closest('.sentence[role="button"]');
  if (span && getSelection().isCollapsed) openAlternatives(span);
});
page.target.addEventListener("keydown", (event) => {
  if ((event.key === "Enter" || event.key === " ") && event.target.matches('.sentence[role="button"]')) {
    event.preventDefault();
    openAlternatives(event.target);
  }
});
page.alternatives.addEventListener("keydown", (event) => {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  const options = [...page.alternatives.children];
  const here = options.indexOf(document.activeElement);
  if (step) options[(here + step + options.length) % options.length].focus();
  else if (event.key === "Enter" || event.key === " ") options[here]?.click();
  else return;
  event.preventDefault();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !page.alternatives.hidden) {
    const span = page.target.querySelector('[aria-expanded="true"]');
    closeAlternatives();
    span?.focus();
  } else if ((event.ctrlKey || event.metaKey) && event.key === "Enter") translate();
  else if (event.altKey && event.code === "KeyS") swap();
  else if (event.altKey && event.code === "KeyC") copy();
  else if (event.altKey && event.code === "KeyH") openHistory();
  else return;
  event.preventDefault();
});
document.addEventListener("pointerdown", (event) => {
  if (!page.alternatives.contains(event.target)) closeAlternatives();
});
$("history-open").addEventListener("click", openHistory);
$("history-close").addEventListener("click", () => page.history.close());
$("history-clear").addEventListener("click", () => { write("history", []); page.history.close(); });
$("upload").addEventListener("click", () => page.file.click());
page.file.addEventListener("change", () => { if (page.file.files[0]) translateFile(page.file.files[0]); page.file.value = ""; });
for (const kind of ["dragover", "dragleave", "drop"]) {
  document.addEventListener(kind, (event) => {
    event.preventDefault();
    document.body.classList.toggle("dropping", kind === "dragover");
    if (kind === "drop" && event.dataTransfer.files[0]) translateFile(event.dataTransfer.files[0]);
  });
}
$("theme").addEventListener("click", () => { const theme = isDark() ? "light" : "dark"; write("theme", theme); applyTheme(theme); });
$("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("key", $("key").value.trim());
  $("key-form").hidden = true;
  translate();
});

begin().catch(() => say("The server cannot be reached: is it still running?", true));
