// @ts-check
// Keeps a page up to date: one stream of events, and at most one read of the page a second. The parts with `data-live`
// that differ are changed. Without the stream the page is read every few seconds, and a banner shows it.
import { morph } from './morph.js';

const REFRESH_MS = 1000;
const POLL_MS = 5000;

/** Calls `what` after each refresh of the page. @param {() => void} what */
export function afterRefresh(what) {
  document.addEventListener('convoke:refreshed', what);
}

/** Shows a message above the page; an empty one hides it. @param {string} text */
function showBanner(text) {
  const banner = document.getElementById('banner');
  if (banner && banner.textContent !== text) banner.textContent = text;
}

/** Changes the live parts of this page to those of `text`, the same page read again. @param {string} text */
function apply(text) {
  const fresh = new DOMParser().parseFromString(text, 'text/html');
  for (const part of document.querySelectorAll('[data-live]')) {
    const wanted = fresh.getElementById(part.id);
    if (wanted) morph(part, wanted);
  }
  document.dispatchEvent(new Event('convoke:refreshed'));
}

class Live {
  /** @param {string} url the stream */
  constructor(url) {
    this.url = url;
    /** @type {EventSource | null} */
    this.source = null;
    this.timer = 0;
    this.poll = 0;
    this.readAt = Date.now();
    this.isReading = false;
    this.isWanted = false;
  }

  open() {
    if (this.source) return;
    const source = new EventSource(this.url);
    this.source = source;
    source.onopen = () => this.found();
    source.onerror = () => this.lost();
    for (const name of ['digest', 'lagged']) source.addEventListener(name, () => this.want());
  }

  close() {
    this.source?.close();
    this.source = null;
    clearInterval(this.poll);
    this.poll = 0;
  }

  /** The stream is open: what happened before, since the page was made or the stream was lost, is read once. */
  found() {
    if (this.poll) {
      clearInterval(this.poll);
      this.poll = 0;
      showBanner('');
    }
    this.want();
  }

  /** The stream is lost: the browser connects again, unless the server rejected it. */
  lost() {
    if (this.poll) return;
    showBanner(`Live updates are interrupted. This page is read every ${POLL_MS / 1000} seconds until they are back.`);
    this.poll = window.setInterval(() => {
      if (this.source?.readyState === EventSource.CLOSED) {
        this.source = null;
        this.open();
      }
      this.want();
    }, POLL_MS);
  }

  /** Reads the page, soon, and at most once a second. */
  want() {
    if (this.timer || document.hidden) return;
    if (this.isReading) {
      this.isWanted = true;
      return;
    }
    const wait = Math.max(0, this.readAt + REFRESH_MS - Date.now());
    this.timer = window.setTimeout(() => void this.read(), wait);
  }

  async read() {
    this.timer = 0;
    this.isReading = true;
    try {
      const response = await fetch(location.href, { headers: { accept: 'text/html' }, cache: 'no-store' });
      if (response.redirected && new URL(response.url).pathname !== location.pathname) {
        showBanner('The session has ended. Open the page again to sign in.');
      } else if (response.ok) {
        apply(await response.text());
      }
    } catch {
      this.lost();
    } finally {
      this.readAt = Date.now();
      this.isReading = false;
      if (this.isWanted) {
        this.isWanted = false;
        this.want();
      }
    }
  }
}

/** Starts the stream of this page, if it is a live one. Hidden pages hold no connection: browsers have few. */
export function startLive() {
  const { events, prefix } = document.body.dataset;
  if (!events) return;
  const live = new Live(`${prefix ?? ''}/v1/events?every=1s&types=${encodeURIComponent(events)}`);
  document.addEventListener('visibilitychange', () => {
    if (document.hidden) {
      live.close();
    } else {
      live.open();
      live.want();
    }
  });
  if (!document.hidden) live.open();
}
