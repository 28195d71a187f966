// @ts-check
// Follows the log of a job: new lines are added at the end, and the view stays at the end if it was there.

const LINES_MAX = 5000;
const FLUSH_MS = 200;

/** @typedef {{ seq: number, at: string, level: string, message: string }} LogLine */

/** @param {LogLine} line */
function row(line) {
  const element = document.createElement('div');
  element.className = `line ${/^(trace|debug|info|warn|error)$/.test(line.level) ? line.level : ''}`;
  /** @type {[string, string][]} */
  const parts = [['at', new Date(line.at).toISOString().slice(11, 23)], ['level', line.level], ['text', line.message]];
  for (const [name, text] of parts) {
    const span = document.createElement('span');
    span.className = name;
    span.textContent = text;
    element.append(span);
  }
  return element;
}

/** @param {HTMLElement} log */
function follow(log) {
  /** @type {LogLine[]} */
  let waiting = [];
  const flush = () => {
    if (waiting.length === 0) return;
    const isAtEnd = log.scrollTop + log.clientHeight >= log.scrollHeight - 8;
    log.querySelector('[data-empty]')?.remove();
    log.append(...waiting.splice(0).map(row));
    for (let surplus = log.children.length - LINES_MAX; surplus > 0; surplus--) log.firstElementChild?.remove();
    if (isAtEnd) log.scrollTop = log.scrollHeight;
  };
  const source = new EventSource(`${log.dataset.stream}?after=${log.dataset.after ?? 0}`);
  const timer = window.setInterval(flush, FLUSH_MS);
  source.addEventListener('log', (event) => {
    waiting.push(JSON.parse(event.data));
    // Only the newest lines can be shown: a flood does not pile up here.
    if (waiting.length > LINES_MAX) waiting = waiting.slice(-LINES_MAX);
  });
  source.addEventListener('end', () => {
    source.close();
    clearInterval(timer);
    flush();
  });
}

export function startLog() {
  const log = document.getElementById('log');
  if (!log?.dataset.stream) return;
  const level = document.querySelector('select[data-level]');
  if (level instanceof HTMLSelectElement) {
    level.addEventListener('change', () => {
      log.dataset.show = level.value;
    });
  }
  log.scrollTop = log.scrollHeight;
  follow(log);
}
