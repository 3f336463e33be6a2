// Documents that are translated one after the other, with their progress.

import { ServerError, post, readJsonLines } from "./api_client.js";

const list = document.getElementById("documents");
let queue = Promise.resolve();

// Adds a file to the list. It is translated and downloaded after those before it; `query` names languages and model.
export function addDocument(file, query, onStatus, onError) {
  const request = new AbortController();
  const row = makeRow(file.name, () => request.abort());
  list.append(row.item);
  queue = queue.then(async () => {
    try {
      request.signal.throwIfAborted();
      onStatus(`Translating ${file.name} …`);
      const content = await translate(file, query, request.signal, row);
      const name = file.name.replace(/(\.[^.]+)$/, `.${query.get("target")}$1`);
      row.finish(URL.createObjectURL(content), name);
      onStatus(`Downloaded ${name}.`);
    } catch (error) {
      if (error.name === "AbortError") {
        row.item.remove();
        onStatus("");
      } else {
        row.fail(error.message);
        onError(error);
      }
    }
  });
}

// Returns the translated file as a blob.
async function translate(file, query, signal, row) {
  const response = await post(`file?${query}`, file, "application/octet-stream", signal, "application/x-ndjson");
  if (!response.headers.get("content-type").startsWith("application/x-ndjson")) return response.blob();
  for await (const line of readJsonLines(response.body)) {
    if (line.error) throw new ServerError(line.error);
    if (line.file !== undefined) return new Blob([Uint8Array.from(atob(line.file), (byte) => byte.charCodeAt(0))]);
    row.update(line.done, line.total);
  }
  throw new ServerError("The connection was lost during the translation: try again.");
}

function makeRow(name, cancel) {
  const item = document.createElement("li");
  const title = document.createElement("span");
  title.className = "document-name";
  title.textContent = name;
  const bar = document.createElement("progress");
  bar.max = 1;
  bar.value = 0;
  bar.setAttribute("aria-label", `Translation of ${name}`);
  const note = document.createElement("span");
  note.className = "note";
  note.textContent = "waiting";
  const button = document.createElement("button");
  button.type = "button";
  button.className = "quiet";
  button.textContent = "Cancel";
  button.addEventListener("click", cancel);
  item.append(title, bar, note, button);

  const end = () => {
    bar.remove();
    button.textContent = "Remove";
    button.removeEventListener("click", cancel);
    button.addEventListener("click", () => item.remove());
  };
  return {
    item,
    update(done, total) {
      bar.max = Math.max(total, 1);
      bar.value = done;
      note.textContent = total ? `${Math.round((100 * done) / total)} %` : "reading";
    },
    finish(address, download) {
      end();
      const link = Object.assign(document.createElement("a"), { href: address, download, textContent: download });
      title.replaceChildren(link);
      note.textContent = "translated";
      button.addEventListener("click", () => URL.revokeObjectURL(address));
      link.click();
    },
    fail(message) {
      end();
      note.textContent = message;
      note.classList.add("error");
    },
  };
}
