/**
 * Ends a call after a time, or with another signal. It holds its timer and its signal: Node.js may collect a signal of
 * `AbortSignal.timeout` to which only `AbortSignal.any` refers, which is then never aborted.
 */
export class Deadline {
  readonly #controller = new AbortController();
  readonly #timer: ReturnType<typeof setTimeout>;
  readonly #others: readonly AbortSignal[];
  readonly #abort = (): void => {
    const reason = this.#others.find((other) => other.aborted)?.reason as unknown;
    this.#controller.abort(reason ?? new DOMException("the time is up", "TimeoutError"));
    this.end();
  };

  constructor(ms: number, ...others: AbortSignal[]) {
    this.#others = others;
    this.#timer = setTimeout(this.#abort, ms);
    for (const other of others) other.addEventListener("abort", this.#abort, { once: true });
    if (others.some((other) => other.aborted)) this.#abort();
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** Forgets the timer and the other signals: the call has ended. */
  end(): void {
    clearTimeout(this.#timer);
    for (const other of this.#others) other.removeEventListener("abort", this.#abort);
  }
}
