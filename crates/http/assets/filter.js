// @ts-check
// Completes the words of the filter bar: first the word before the colon, then the values that the page knows.

const CHOICES_MAX = 12;

/**
 * Returns the texts that can follow what was typed.
 * @param {string} typed the word under the cursor
 * @param {string[]} words
 * @param {string[]} values
 */
export function complete(typed, words, values) {
  if (!typed) return words.map((word) => `${word}:`);
  const pool = typed.includes(':') ? values : [...words.map((word) => `${word}:`), ...values];
  const wanted = typed.toLowerCase();
  return pool.filter((text) => text.toLowerCase().startsWith(wanted) && text !== typed).slice(0, CHOICES_MAX);
}

class Completion {
  /** @param {HTMLInputElement} input */
  constructor(input) {
    this.input = input;
    this.words = (input.dataset.words ?? '').split(' ');
    this.at = -1;
    this.list = document.createElement('ul');
    this.list.className = 'choices';
    this.list.id = 'choices';
    this.list.hidden = true;
    this.list.setAttribute('role', 'listbox');
    this.list.setAttribute('aria-label', 'Completions');
    input.setAttribute('role', 'combobox');
    input.setAttribute('aria-controls', 'choices');
    input.setAttribute('aria-autocomplete', 'list');
    input.after(this.list);
    this.hide();
    input.addEventListener('input', () => this.show());
    input.addEventListener('focus', () => this.show());
    input.addEventListener('blur', () => this.hide());
    input.addEventListener('keydown', (event) => this.key(event));
  }

  /** The values that the page lists, and the types of the jobs that it shows. */
  values() {
    const listed = [...document.querySelectorAll('#filter-values li')].map((item) => item.textContent ?? '');
    const types = [...document.querySelectorAll('#jobs tbody th a')].map((link) => `type:${link.textContent ?? ''}`);
    return [...new Set([...listed, ...types.filter((text) => !/\s|"/.test(text))])];
  }

  /** The word under the cursor and where it begins. */
  word() {
    const end = this.input.selectionStart ?? this.input.value.length;
    const start = this.input.value.lastIndexOf(' ', end - 1) + 1;
    return { start, end, text: this.input.value.slice(start, end) };
  }

  show() {
    const choices = complete(this.word().text, this.words, this.values());
    this.list.replaceChildren(...choices.map((text, place) => this.item(text, place)));
    this.list.hidden = choices.length === 0;
    this.input.setAttribute('aria-expanded', String(!this.list.hidden));
    this.select(-1);
  }

  /** @param {string} text @param {number} place */
  item(text, place) {
    const item = document.createElement('li');
    item.textContent = text;
    item.id = `choice-${place}`;
    item.setAttribute('role', 'option');
    item.addEventListener('mousedown', (event) => {
      event.preventDefault();
      this.take(text);
    });
    return item;
  }

  hide() {
    this.list.hidden = true;
    this.input.setAttribute('aria-expanded', 'false');
    this.input.removeAttribute('aria-activedescendant');
    this.at = -1;
  }

  /** @param {number} at */
  select(at) {
    const items = [...this.list.children];
    this.at = items.length === 0 ? -1 : Math.max(-1, Math.min(items.length - 1, at));
    items.forEach((item, place) => item.setAttribute('aria-selected', String(place === this.at)));
    if (this.at >= 0) this.input.setAttribute('aria-activedescendant', `choice-${this.at}`);
    else this.input.removeAttribute('aria-activedescendant');
    items[this.at]?.scrollIntoView({ block: 'nearest' });
  }

  /** @param {string} text */
  take(text) {
    const { start, end } = this.word();
    const isWhole = !text.endsWith(':');
    this.input.setRangeText(isWhole ? `${text} ` : text, start, end, 'end');
    this.show();
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    if (this.list.hidden) return;
    const chosen = this.list.children[this.at]?.textContent;
    if (event.key === 'ArrowDown') this.select(this.at + 1);
    else if (event.key === 'ArrowUp') this.select(this.at - 1);
    else if ((event.key === 'Enter' || event.key === 'Tab') && chosen) this.take(chosen);
    else {
      if (event.key === 'Escape') this.hide();
      return;
    }
    event.preventDefault();
  }
}

export function startFilter() {
  const input = document.querySelector('input[data-words]');
  if (input instanceof HTMLInputElement) new Completion(input);
}
