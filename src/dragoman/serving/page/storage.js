// Preferences and translation history, kept in the browser's local storage.

const HISTORY_LENGTH = 30;

export function load(key, fallback) {
  try {
    return JSON.parse(localStorage.getItem(key)) ?? fallback;
  } catch {
    return fallback;
  }
}

export function save(key, value) {
  try {
    localStorage.setItem(key, JSON.stringify(value));
  } catch { /* Storage can be full or disabled. The page works without it. */ }
}

export const loadHistory = () => load("history", []);

export const clearHistory = () => save("history", []);

// Entries that the new text continues are replaced, so that typing does not fill the history.
export function addToHistory(entry) {
  const earlier = loadHistory().filter((other) => !entry.q.startsWith(other.q) || other.to !== entry.to);
  save("history", [entry, ...earlier].slice(0, HISTORY_LENGTH));
}
