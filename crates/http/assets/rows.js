// @ts-check
// Selected rows: one box for all of a page, and their number.
import { afterRefresh } from './live.js';

/** @returns {HTMLInputElement[]} */
function boxes() {
  return [...document.querySelectorAll('input[type="checkbox"][name="id"]')].filter((box) => box instanceof HTMLInputElement);
}

function count() {
  const all = boxes();
  const chosen = all.filter((box) => box.checked);
  for (const box of all) box.closest('tr')?.classList.toggle('chosen', box.checked);
  for (const place of document.querySelectorAll('[data-selected]')) {
    const text = chosen.length > 0 ? `${chosen.length} selected` : '';
    if (place.textContent !== text) place.textContent = text;
  }
  const whole = document.querySelector('input[data-all]');
  if (whole instanceof HTMLInputElement) {
    whole.checked = all.length > 0 && chosen.length === all.length;
    whole.indeterminate = chosen.length > 0 && chosen.length < all.length;
  }
}

export function startRows() {
  document.addEventListener('change', (event) => {
    const box = event.target;
    if (!(box instanceof HTMLInputElement) || box.type !== 'checkbox') return;
    if ('all' in box.dataset) for (const other of boxes()) other.checked = box.checked;
    count();
  });
  afterRefresh(count);
  count();
}
