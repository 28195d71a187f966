/** Events that the server has not accepted yet. Bounded: as long as it is full, no further run is fetched. */

import { REPORT_BYTES_MAX, REPORT_EVENTS_MAX } from "../limits.js";
import type { Run } from "./run.js";

const BYTES_MAX = 16 << 20;
const LINES_MAX = 10_000;

export interface OutEvent {
  readonly run: Run;
  readonly isEnd: boolean;
  /** An end that says that the run failed. */
  readonly isFailure?: boolean;
  readonly text: string;
}

export class Outbox {
  #events: OutEvent[] = [];
  #lines = 0;
  #bytes = 0;

  get isEmpty(): boolean {
    return this.#events.length === 0;
  }

  get hasRoom(): boolean {
    return this.#bytes < BYTES_MAX;
  }

  /** Whether a further line of a log may wait. */
  get hasRoomForLine(): boolean {
    return this.#lines < LINES_MAX && this.hasRoom;
  }

  add(event: OutEvent): void {
    this.#events.push(event);
    this.#bytes += event.text.length;
    if (!event.isEnd) this.#lines++;
  }

  /** Removes and returns the events of the next request, in order. */
  take(): OutEvent[] {
    let [count, bytes] = [0, 0];
    for (const event of this.#events) {
      if (count === REPORT_EVENTS_MAX || (count > 0 && bytes + event.text.length * 3 > REPORT_BYTES_MAX)) break;
      bytes += event.text.length;
      count++;
    }
    const taken = count === this.#events.length ? this.#events : this.#events.slice(0, count);
    this.#events = this.#events.slice(count);
    this.#bytes -= bytes;
    for (const event of taken) if (!event.isEnd) this.#lines--;
    return taken;
  }
}
