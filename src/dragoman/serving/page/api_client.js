// Requests to the translation server.

export class ServerError extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

export const getJson = async (path) => (await fetch(path)).json();

// Sends a POST request with the stored API key. Throws a ServerError with the server's own message if it fails.
export async function post(path, body, contentType, signal, accept = "*/*") {
  const headers = { "content-type": contentType, accept };
  const key = sessionStorage.getItem("key");
  if (key) headers.authorization = `Bearer ${key}`;
  let response;
  try {
    response = await fetch(path, { method: "POST", body, headers, signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServerError("Cannot reach the server: check that it is running.");
  }
  if (response.ok) return response;
  const content = await response.json().catch(() => ({ error: `The server responded with status ${response.status}.` }));
  throw new ServerError(content.error, response.status);
}

// The objects of a stream of JSON lines.
export async function* readJsonLines(stream) {
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
