// The translate page: sends text while the user types, and shows sentences as they arrive.
// All content is inserted as text, never as HTML.

import { ServerError, getJson, post, readJsonLines } from "./api_client.js";
import { addDocument } from "./document_list.js";
import { addToHistory, clearHistory, load, loadHistory, save } from "./storage.js";

const TYPING_PAUSE_MS = 250; // without a key press before the text is sent
const HISTORY_DELAY_MS = 1500; // without a change before a translation is added to the history
const ALTERNATIVES = 5;
const UNCERTAIN_BELOW = [0.3, 0.5, 0.7]; // confidence limits of the three highlights, strongest first

const $ = (id) => document.getElementById(id);
const page = {
  source: $("source"), target: $("target"), sourceLanguage: $("source-language"), targetLanguage: $("target-language"),
  model: $("model"), swap: $("swap"), copy: $("copy"), clear: $("clear"), count: $("count"), status: $("status"),
  file: $("file"), alternatives: $("alternatives"), highlight: $("highlight"), history: $("history"),
};

let languages = [];
let models = [];
let settings = null; // until the server has sent them
let sentences = []; // of the translation shown: source, text, glue, alternatives, words
let currentRequest = null;
let typingTimer, historyTimer;

async function start() {
  applyTheme(load("theme", null));
  page.highlight.checked = load("highlight", false);
  page.target.classList.toggle("highlight", page.highlight.checked);
  [languages, models, settings] = await Promise.all(["languages", "models", "frontend/settings"].map(getJson));
  for (const language of languages) language.targets = language.targets.filter((code) => code !== language.code);
  $("key-form").hidden = !settings.keyRequired || Boolean(sessionStorage.getItem("key"));
  page.file.accept = settings.supportedFilesFormat.join(",");
  $("upload").title = `Translate files. Supported formats: ${page.file.accept.replaceAll(",", ", ")}`;
  $("models").textContent = models
    .map((model) => `${model.name} (${model.compute_type}, beam ${model.beam})`).join(", ");
  const sources = languages.filter((language) => language.targets.length);
  const sourceOptions = sources.map((language) => [language.code, displayName(language)]);
  setOptions(page.sourceLanguage, [["auto", "Detect language"], ...sourceOptions]);
  const [source, target] = load("direction", [sources[0].code, sources[0].targets[0]]);
  const isKnown = source === "auto" || sources.some((language) => language.code === source);
  page.sourceLanguage.value = isKnown ? source : sources[0].code;
  updateTargets(target);
  updateCount();
  translate(); // Text may have been typed by now.
}

function displayName(language) {
  try {
    return new Intl.DisplayNames([navigator.language], { type: "language" }).of(language.code);
  } catch {
    return language.name;
  }
}

function setOptions(select, entries) {
  select.replaceChildren(...entries.map(([value, text]) => new Option(text, value)));
}

function updateTargets(wanted = page.targetLanguage.value) {
  const codes = page.sourceLanguage.value === "auto"
    ? languages.map((language) => language.code).filter((code) => models.some((model) => model.target === code))
    : findLanguage(page.sourceLanguage.value).targets;
  setOptions(page.targetLanguage, codes.map((code) => [code, displayName(findLanguage(code))]));
  page.targetLanguage.value = codes.includes(wanted) ? wanted : codes[0];
  const matching = findModels(page.sourceLanguage.value, page.targetLanguage.value);
  setOptions(page.model, matching.map((model) => [model.name, model.name]));
  page.model.hidden = matching.length < 2;
  page.swap.disabled = findModels(page.targetLanguage.value, page.sourceLanguage.value).length === 0;
  save("direction", [page.sourceLanguage.value, page.targetLanguage.value]);
}

const findLanguage = (code) => languages.find((language) => language.code === code);

const findModels = (source, target) => models.filter((model) => model.source === source && model.target === target);

function updateCount() {
  if (!settings) return;
  const length = page.source.value.length;
  page.count.textContent = length ? `${length.toLocaleString()} / ${settings.charLimit.toLocaleString()}` : "";
  page.count.classList.toggle("over", length > settings.charLimit);
  page.clear.hidden = length === 0;
}

function showStatus(message, isError = false) {
  page.status.textContent = message;
  page.status.classList.toggle("error", isError);
}

function showError(error) {
  if (error.status === 401 || error.status === 403) {
    sessionStorage.removeItem("key");
    $("key-form").hidden = false;
  }
  showStatus(error.message, true);
}

function setSource(text) {
  page.source.value = text;
  updateCount();
  translate();
}

function translateAfterPause() {
  updateCount();
  clearTimeout(typingTimer);
  typingTimer = setTimeout(translate, TYPING_PAUSE_MS);
}

async function translate() {
  if (!settings) return;
  clearTimeout(typingTimer);
  clearTimeout(historyTimer);
  currentRequest?.abort();
  closeAlternatives();
  const text = page.source.value;
  if (!text.trim()) {
    sentences = [];
    showTranslation();
    setBusy(false);
    showStatus("");
    return;
  }
  const request = (currentRequest = new AbortController());
  setBusy(true);
  try {
    await receiveTranslation(text, request.signal);
    historyTimer = setTimeout(addCurrentToHistory, HISTORY_DELAY_MS);
  } catch (error) {
    if (error.name !== "AbortError") {
      showError(error);
      page.target.classList.add("stale");
    }
  }
  if (currentRequest === request) setBusy(false);
}

function setBusy(isBusy) {
  page.target.classList.toggle("busy", isBusy);
  page.target.setAttribute("aria-busy", String(isBusy));
}

async function receiveTranslation(text, signal) {
  const fields = {
    q: text, source: page.sourceLanguage.value, target: page.targetLanguage.value,
    alternatives: ALTERNATIVES, confidence: page.highlight.checked,
  };
  if (!page.model.hidden) fields.model = page.model.value;
  const response = await post("stream", JSON.stringify(fields), "application/json", signal);
  let header = null;
  let end = null;
  for await (const line of readJsonLines(response.body)) {
    if (line.done) {
      end = line;
    } else if (header === null) {
      header = line;
      sentences = [];
      page.target.replaceChildren();
      page.target.classList.remove("stale");
      page.target.lang = line.target;
    } else {
      page.target.classList.remove("busy");
      sentences.push(line);
      appendSentence(line, sentences.length - 1);
    }
  }
  if (end === null) throw new ServerError("The connection was lost during the translation: try again.");
  page.copy.hidden = sentences.length === 0;
  showStatus(summarize(text, header, end.seconds));
}

function summarize(text, header, seconds) {
  const words = text.trim().split(/\s+/).length;
  const milliseconds = Math.max(1, Math.round(seconds * 1000));
  const detected = header.detected ? `Detected ${displayName({ code: header.source, name: header.source })}. ` : "";
  const counted = `${words.toLocaleString()} ${words === 1 ? "word" : "words"}`;
  const via = header.via ? `, via ${displayName({ code: header.via, name: header.via })}` : "";
  return `${detected}${counted} in ${milliseconds.toLocaleString()} ms by ${header.model}${via}`;
}

function showTranslation() {
  page.target.replaceChildren();
  page.target.classList.remove("stale");
  sentences.forEach(appendSentence);
  page.copy.hidden = sentences.length === 0;
}

function appendSentence(sentence, index) {
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
    span.append(...(sentence.words.length ? highlightWords(sentence.words) : [sentence.text]));
    page.target.append(span);
  }
  page.target.append(sentence.glue);
}

function highlightWords(words) {
  return words.flatMap((word, index) => {
    const level = UNCERTAIN_BELOW.findIndex((limit) => word.confidence < limit);
    const space = index ? " " : "";
    if (level < 0) return [space + word.text];
    const mark = document.createElement("span");
    mark.className = `uncertain-${UNCERTAIN_BELOW.length - level}`;
    mark.title = `Confidence ${Math.round(100 * word.confidence)} %`;
    mark.textContent = word.text;
    return [space, mark];
  });
}

function openAlternatives(span) {
  closeAlternatives();
  const sentence = sentences[span.dataset.index];
  page.alternatives.replaceChildren(...[sentence.text, ...sentence.alternatives].map((text, index) => {
    const option = document.createElement("div");
    option.setAttribute("role", "option");
    option.setAttribute("aria-selected", String(index === 0));
    option.tabIndex = -1;
    option.dir = "auto";
    option.textContent = text;
    option.addEventListener("click", () => chooseAlternative(span, sentence, index));
    return option;
  }));
  span.setAttribute("aria-expanded", "true");
  page.alternatives.hidden = false;
  const maxLeft = document.documentElement.clientWidth - page.alternatives.offsetWidth - 16;
  page.alternatives.style.left = `${Math.max(16, Math.min(span.getClientRects()[0].left, maxLeft)) + scrollX}px`;
  page.alternatives.style.top = `${span.getBoundingClientRect().bottom + scrollY + 6}px`;
  page.alternatives.firstChild.focus({ preventScroll: true });
}

function chooseAlternative(span, sentence, index) {
  if (index > 0) {
    const chosen = sentence.alternatives[index - 1];
    sentence.alternatives = [sentence.text, ...sentence.alternatives.filter((text) => text !== chosen)];
    sentence.text = chosen;
    sentence.words = []; // The confidences belong to the previous text.
    showTranslation();
  }
  closeAlternatives();
  page.target.querySelector(`[data-index="${span.dataset.index}"]`)?.focus();
}

function closeAlternatives() {
  page.alternatives.hidden = true;
  page.target.querySelector('[aria-expanded="true"]')?.setAttribute("aria-expanded", "false");
}

const translatedText = () => sentences.map((sentence) => sentence.text + sentence.glue).join("");

async function copy() {
  try {
    await navigator.clipboard.writeText(translatedText());
  } catch { // The clipboard API needs HTTPS or localhost.
    getSelection().selectAllChildren(page.target);
    document.execCommand("copy");
    getSelection().removeAllRanges();
  }
  page.copy.textContent = "Copied";
  setTimeout(() => { page.copy.textContent = "Copy"; }, 1500);
}

function swapLanguages() {
  if (page.swap.disabled) return;
  const [source, target, text] = [page.sourceLanguage.value, page.targetLanguage.value, translatedText()];
  page.sourceLanguage.value = target;
  updateTargets(source);
  setSource(text || page.source.value);
}

function addCurrentToHistory() {
  addToHistory({
    from: page.sourceLanguage.value, to: page.targetLanguage.value, q: page.source.value, text: translatedText(),
  });
}

function openHistory() {
  const entries = loadHistory();
  $("history-empty").hidden = entries.length > 0;
  $("history-clear").hidden = entries.length === 0;
  $("history-list").replaceChildren(...entries.map((entry) => {
    const item = document.createElement("li");
    const button = document.createElement("button");
    button.type = "button";
    for (const text of [entry.q, entry.text]) {
      const line = document.createElement("span");
      line.dir = "auto";
      line.textContent = text;
      button.append(line);
    }
    button.addEventListener("click", () => restore(entry));
    item.append(button);
    return item;
  }));
  page.history.showModal();
}

function restore(entry) {
  page.history.close();
  const isOffered = [...page.sourceLanguage.options].some((option) => option.value === entry.from);
  if (isOffered) page.sourceLanguage.value = entry.from;
  updateTargets(entry.to);
  setSource(entry.q);
}

// Returns the reason why a file cannot be translated, if there is one.
function findFileProblem(file) {
  const formats = page.file.accept.split(",");
  if (!formats.some((format) => file.name.toLowerCase().endsWith(format))) {
    return `Cannot translate ${file.name}: supported formats are ${formats.join(", ")}.`;
  }
  const limit = settings.maxFileBytes[file.name.split(".").pop().toLowerCase()];
  if (file.size > limit) return `${file.name} is too large: the limit is ${limit.toLocaleString()} bytes.`;
  return null;
}

function translateFiles(files) {
  if (!settings) return;
  for (const file of files) {
    const problem = findFileProblem(file);
    if (problem) {
      showStatus(problem, true);
      continue;
    }
    const [source, target] = [page.sourceLanguage.value, page.targetLanguage.value];
    const query = new URLSearchParams({ name: file.name, source, target });
    if (!page.model.hidden) query.set("model", page.model.value);
    addDocument(file, query, showStatus, showError);
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

page.source.addEventListener("input", translateAfterPause);
page.sourceLanguage.addEventListener("change", () => { updateTargets(); translate(); });
page.targetLanguage.addEventListener("change", () => { updateTargets(); translate(); });
page.model.addEventListener("change", translate);
page.swap.addEventListener("click", swapLanguages);
page.copy.addEventListener("click", copy);
page.clear.addEventListener("click", () => { setSource(""); page.source.focus(); });
page.highlight.addEventListener("change", () => {
  save("highlight", page.highlight.checked);
  page.target.classList.toggle("highlight", page.highlight.checked);
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
  const focused = options.indexOf(document.activeElement);
  if (step) options[(focused + step + options.length) % options.length].focus();
  else if (event.key === "Enter" || event.key === " ") options[focused]?.click();
  else return;
  event.preventDefault();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !page.alternatives.hidden) {
    const span = page.target.querySelector('[aria-expanded="true"]');
    closeAlternatives();
    span?.focus();
  } else if ((event.ctrlKey || event.metaKey) && event.key === "Enter") translate();
  else if (event.altKey && event.code === "KeyS") swapLanguages();
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
$("history-clear").addEventListener("click", () => { clearHistory(); page.history.close(); });
$("upload").addEventListener("click", () => page.file.click());
page.file.addEventListener("change", () => {
  translateFiles(page.file.files);
  page.file.value = "";
});
for (const type of ["dragover", "dragleave", "drop"]) {
  document.addEventListener(type, (event) => {
    event.preventDefault();
    document.body.classList.toggle("dropping", type === "dragover");
    if (type === "drop") translateFiles(event.dataTransfer.files);
  });
}
$("theme").addEventListener("click", () => {
  const theme = isDark() ? "light" : "dark";
  save("theme", theme);
  applyTheme(theme);
});
$("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("key", $("key").value.trim());
  $("key-form").hidden = true;
  translate();
});

start().catch(() => showStatus("Cannot reach the server: check that it is running.", true));
