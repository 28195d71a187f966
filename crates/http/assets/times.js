// @ts-check
// Times: ages that grow while the page is open, and instants in the viewer's zone.
import { afterRefresh } from './live.js';

const UNITS = /** @type {const} */ ([['d', 86400], ['h', 3600], ['m', 60], ['s', 1]]);

/** @param {number} seconds @returns {string} its two largest units */
function span(seconds) {
  const first = UNITS.findIndex(([, size]) => seconds >= size);
  if (first < 0) return '0s';
  let rest = seconds;
  const parts = [];
  for (const [unit, size] of UNITS.slice(first, first + 2)) {
    const count = Math.floor(rest / size);
    rest -= count * size;
    if (count > 0) parts.push(`${count}${unit}`);
  }
  return parts.join(' ');
}

/** How far the server's clock is ahead of this one, in milliseconds: ages are those of the server. */
const ahead = Number(document.body.dataset.now ?? Date.now()) - Date.now();

/** Writes every age as it is now. */
function write() {
  const now = Date.now() + ahead;
  for (const time of document.querySelectorAll('time[data-ms]')) {
    if (!(time instanceof HTMLTimeElement)) continue;
    const at = Number(time.dataset.ms);
    if ('relative' in time.dataset) {
      const seconds = Math.abs(now - at) / 1000;
      if (seconds >= 1) {
        const text = at > now ? `in ${span(seconds)}` : `${span(seconds)} ago`;
        if (time.textContent !== text) time.textContent = text;
      }
    } else {
      const text = new Date(at).toLocaleString(undefined, { dateStyle: 'medium', timeStyle: 'medium' });
      if (time.textContent !== text) time.textContent = text;
    }
    const title = `${new Date(at).toLocaleString()} (${time.dateTime})`;
    if (time.title !== title) time.title = title;
  }
}

export function startTimes() {
  write();
  afterRefresh(write);
  window.setInterval(() => {
    if (!document.hidden) write();
  }, 1000);
}
