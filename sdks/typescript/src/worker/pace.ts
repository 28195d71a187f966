/** How many runs to fetch ahead: as many as the slots end in the time of a few polls. Long runs are never fetched ahead. */

const AHEAD_MS = 50;
const AHEAD_MAX = 1_000;
const WEIGHT = 1 / 32;

export class Pace {
  #averageMs = AHEAD_MS;

  ended(tookMs: number): void {
    this.#averageMs += (tookMs - this.#averageMs) * WEIGHT;
  }

  prefetch(concurrency: number): number {
    if (this.#averageMs >= AHEAD_MS) return 0;
    return Math.min(AHEAD_MAX, Math.floor((concurrency * AHEAD_MS) / Math.max(this.#averageMs, 0.05)));
  }
}
