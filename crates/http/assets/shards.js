// @ts-check
// The scrubber over the last rebalances of a service: moves the shards back, one rebalance at a time.
import { afterRefresh } from './live.js';

/** @typedef {{first: number, last: number, from: string | null, to: string | null}} Move */
/** @typedef {{version: number, at: string, moved: number, causes: {change: string, count: number}[], moves: Move[], cut: boolean}} Rebalance */

const SVG = 'http://www.w3.org/2000/svg';

/** Returns the owner of each shard now. @param {{workers: {workerId: string, shards: number[]}[]}} service @param {number} shards */
function ownersOf(service, shards) {
  /** @type {(string | null)[]} */
  const owners = new Array(shards).fill(null);
  for (const worker of service.workers) for (const shard of worker.shards) if (shard < shards) owners[shard] = worker.workerId;
  return owners;
}

/** Undoes the moves of a rebalance. @param {(string | null)[]} owners @param {Rebalance} rebalance */
function undo(owners, rebalance) {
  for (const move of rebalance.moves) {
    for (let shard = move.first; shard <= move.last && shard < owners.length; shard += 1) owners[shard] = move.from;
  }
}

/** Returns the runs of shards of each owner. @param {(string | null)[]} owners */
function runsOf(owners) {
  /** @type {Map<string, [number, number][]>} */
  const runs = new Map();
  let first = 0;
  for (let shard = 1; shard <= owners.length; shard += 1) {
    if (shard < owners.length && owners[shard] === owners[first]) continue;
    const owner = owners[first] ?? '';
    const list = runs.get(owner) ?? [];
    list.push([first, shard - first]);
    runs.set(owner, list);
    first = shard;
  }
  return runs;
}

/** Returns a row for a worker that is not in the service any more. @param {string} worker @param {number} shards */
function rowOf(worker, shards) {
  const row = document.createElement('tr');
  row.dataset.worker = worker;
  row.dataset.gone = '';
  const [name, count, place] = [document.createElement('th'), document.createElement('td'), document.createElement('td')];
  name.scope = 'row';
  name.className = 'cut';
  name.textContent = `${worker} – gone since`;
  count.className = 'num';
  count.dataset.count = '';
  const strip = document.createElementNS(SVG, 'svg');
  for (const [key, value] of [['class', 'strip'], ['viewBox', `0 0 ${shards} 1`], ['preserveAspectRatio', 'none'], ['aria-hidden', 'true']]) {
    strip.setAttribute(key, value);
  }
  place.append(strip);
  row.append(name, count, place, document.createElement('td'), document.createElement('td'));
  return row;
}

/** Draws the runs into the rows of the grid. @param {HTMLElement} grid @param {Map<string, [number, number][]>} runs @param {Set<string>} present */
function draw(grid, runs, present) {
  for (const row of grid.querySelectorAll('tr[data-gone]')) row.remove();
  for (const worker of runs.keys()) {
    if (worker !== '' && !present.has(worker)) grid.querySelector('tbody')?.append(rowOf(worker, Number(grid.dataset.shards)));
  }
  for (const row of grid.querySelectorAll('tr[data-worker]')) {
    if (!(row instanceof HTMLElement)) continue;
    const worker = row.dataset.worker ?? '';
    const list = runs.get(worker) ?? [];
    const strip = row.querySelector('svg.strip');
    const rects = list.map(([first, length]) => {
      const rect = document.createElementNS(SVG, 'rect');
      rect.setAttribute('class', worker === '' ? 'unassigned' : 'own');
      rect.setAttribute('x', String(first));
      rect.setAttribute('y', '0');
      rect.setAttribute('width', String(length));
      rect.setAttribute('height', '1');
      return rect;
    });
    strip?.replaceChildren(...rects);
    const count = row.querySelector('[data-count]');
    if (count) count.textContent = String(list.reduce((sum, [, length]) => sum + length, 0));
  }
}

class Scrubber {
  /** @param {HTMLElement} grid @param {HTMLInputElement} input @param {HTMLElement} output */
  constructor(grid, input, output) {
    this.grid = grid;
    this.input = input;
    this.output = output;
    /** @type {Rebalance[]} */
    this.rebalances = [];
    /** @type {{workers: {workerId: string, shards: number[]}[]} | null} */
    this.service = null;
    this.isReading = false;
  }

  get shards() {
    return Number(this.grid.dataset.shards ?? '0');
  }

  async read() {
    if (this.isReading) return;
    this.isReading = true;
    try {
      const base = `${document.body.dataset.prefix ?? ''}/v1/shards/${encodeURIComponent(this.grid.dataset.service ?? '')}`;
      const [history, service] = await Promise.all([fetch(`${base}/history?limit=64`), fetch(base)]);
      if (!history.ok || !service.ok) return;
      this.rebalances = (await history.json()).rebalances;
      this.service = await service.json();
      // What was before a rebalance that is not kept whole is not known.
      const cut = this.rebalances.findIndex((rebalance) => rebalance.cut);
      this.input.max = String(cut < 0 ? this.rebalances.length : cut);
    } finally {
      this.isReading = false;
    }
  }

  show() {
    const back = Math.min(Number(this.input.value), this.rebalances.length);
    if (!this.service) return;
    const present = new Set(this.service.workers.map((worker) => worker.workerId));
    if (back === 0) {
      this.output.textContent = 'now';
      draw(this.grid, runsOf(ownersOf(this.service, this.shards)), present);
      return;
    }
    const owners = ownersOf(this.service, this.shards);
    for (const rebalance of this.rebalances.slice(0, back)) undo(owners, rebalance);
    const undone = this.rebalances[back - 1];
    const causes = undone.causes.map((cause) => (cause.count === 1 ? cause.change : `${cause.change} × ${cause.count}`));
    this.output.textContent = `before version ${undone.version} (${causes.join(', ')}; ${undone.moved} moved)`;
    draw(this.grid, runsOf(owners), present);
  }
}

export function startShards() {
  const [grid, input, output] = ['grid', 'scrubber', 'scrubbed'].map((id) => document.getElementById(id));
  if (!grid || !(input instanceof HTMLInputElement) || !output || !grid.dataset.service) return;
  const scrubber = new Scrubber(grid, input, output);
  input.addEventListener('input', () => {
    if (scrubber.service) scrubber.show();
    else scrubber.read().then(() => scrubber.show());
  });
  // While an earlier state is shown, a refresh of the page must not replace it.
  afterRefresh(() => {
    if (input.value === '0') scrubber.read();
    else scrubber.show();
  });
  scrubber.read();
}
