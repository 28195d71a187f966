// @ts-check
// Goes on with an action on many jobs: each request does a part of it and returns the next form.

const PAUSE_MS = 50;

export function startBulk() {
  const form = document.querySelector('form[data-go-on]');
  if (form instanceof HTMLFormElement) window.setTimeout(() => form.submit(), PAUSE_MS);
}
