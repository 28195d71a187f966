// @ts-check
// The keyboard: `/` focuses the filter, `g` and a letter open a page, `?` shows the keys, `j` and `k` walk over rows.

const CHORD_MS = 1500;

/** @param {EventTarget | null} target @returns {boolean} whether keys are text there */
function isTyping(target) {
  if (!(target instanceof HTMLElement)) return false;
  return target.isContentEditable || /^(input|textarea|select)$/i.test(target.tagName);
}

/** Moves to the next row of the list, or to the one before. @param {number} step */
function walk(step) {
  const rows = [...document.querySelectorAll('table[data-rows] tbody tr')];
  if (rows.length === 0) return;
  const at = rows.findIndex((row) => row.contains(document.activeElement));
  const next = rows[Math.min(rows.length - 1, Math.max(0, at + step))];
  const link = next?.querySelector('a');
  if (link instanceof HTMLElement) link.focus();
}

/** Selects the row of the focus, or no longer. */
function choose() {
  const row = document.activeElement?.closest('tr');
  const box = row?.querySelector('input[type="checkbox"]');
  if (box instanceof HTMLInputElement) box.click();
}

/** @param {string} id */
function show(id) {
  const dialog = document.getElementById(id);
  if (dialog instanceof HTMLDialogElement && !dialog.open) dialog.showModal();
}

/** @param {string} key @returns {boolean} whether a page has this key */
function go(key) {
  for (const link of document.querySelectorAll('nav.side a[data-key]')) {
    if (link instanceof HTMLAnchorElement && link.dataset.key === key) {
      location.assign(link.href);
      return true;
    }
  }
  return false;
}

export function startKeys() {
  let chordAt = 0;
  document.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (isTyping(event.target)) {
      if (event.key === 'Escape' && event.target instanceof HTMLElement) event.target.blur();
      return;
    }
    const isChord = Date.now() - chordAt < CHORD_MS;
    chordAt = 0;
    if (isChord && go(event.key)) return;
    const filter = document.querySelector('[data-filter]');
    if (event.key === 'g') {
      chordAt = Date.now();
    } else if (event.key === '/' && filter instanceof HTMLInputElement) {
      event.preventDefault();
      filter.focus();
      filter.select();
    } else if (event.key === '?') {
      show('keys');
    } else if (event.key === 'j') {
      walk(1);
    } else if (event.key === 'k') {
      walk(-1);
    } else if (event.key === 'x') {
      choose();
    }
  });
  for (const button of document.querySelectorAll('[data-open]')) {
    button.addEventListener('click', () => show(button.getAttribute('data-open') ?? ''));
  }
}
