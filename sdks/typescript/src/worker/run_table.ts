/**
 * The runs in hand: those that wait for a slot, that run, and whose end was not accepted yet. Heartbeats list these: a run
 * that is missing there is given to another worker.
 */

import { POLL_JOBS_MAX } from "../limits.js";
import { Outbox, type OutEvent } from "./outbox.js";
import { Pace } from "./pace.js";
import { Run, type Assignment, type Reports } from "./run.js";

/** The start of a run is reported this late, so that a fast run sends all its events in one request. */
const START_HELD_MS = 100;
/** A run that was fetched ahead is released if it has found no slot after this time. */
const WAIT_MAX_MS = 1_000;

export interface TableEvents {
  /** A run got a slot. */
  start(run: Run): void;
  /** There are events to send. */
  send(): void;
  /** There may be room for more runs, or a run is over. */
  progressed(): void;
  /** These runs are no longer in hand. */
  removed(executions: readonly string[]): void;
}

export class RunTable implements Reports {
  readonly outbox = new Outbox();
  readonly #concurrency: number;
  readonly #on: TableEvents;
  readonly #runs = new Map<string, Run>();
  readonly #pace = new Pace();
  /** Runs that failed and are reported later, each with that report. */
  readonly #parked = new Map<Run, string>();
  #waiting: Run[] = [];
  #starting: Run[] = [];
  #startTimer: NodeJS.Timeout | undefined;
  #busy = 0;
  #live = 0;
  #dropped = 0;
  isDraining = false;

  constructor(concurrency: number, on: TableEvents) {
    this.#concurrency = concurrency;
    this.#on = on;
  }

  /** How many runs to poll for. */
  get wanted(): number {
    if (this.isDraining || !this.outbox.hasRoom) return 0;
    const target = this.#concurrency + this.#pace.prefetch(this.#concurrency);
    const wanted = target - this.#busy - this.#waiting.length;
    // One poll for many runs: as long as runs wait, it can wait too.
    if (this.#waiting.length > 0 && wanted * 2 < target) return 0;
    return Math.max(0, Math.min(wanted, POLL_JOBS_MAX));
  }

  /** The ids of all runs in hand. */
  get executions(): string[] {
    return [...this.#runs.keys()];
  }

  /** Runs that are not over. */
  get live(): number {
    return this.#live;
  }

  /** Adds fetched runs, and starts as many as there are slots. Returns the ids of those that are new. */
  accept(assignments: readonly Assignment[]): string[] {
    const added: string[] = [];
    for (const assignment of assignments) {
      // A response that came twice must not start a run twice.
      if (this.#runs.has(assignment.executionId)) continue;
      const run = new Run(assignment, this);
      this.#runs.set(run.executionId, run);
      this.#waiting.push(run);
      this.#live++;
      added.push(run.executionId);
    }
    return added;
  }

  /** Gives waiting runs to free slots. */
  fill(): void {
    while (this.#busy < this.#concurrency) {
      const run = this.#waiting.shift();
      if (!run) break;
      if (!run.isOver) this.#start(run);
    }
    const last = this.#waiting.at(-1);
    if (last && last.timer === undefined) last.timer = setTimeout(() => this.#releaseUntaken(last), WAIT_MAX_MS);
  }

  #start(run: Run): void {
    this.#busy++;
    clearTimeout(run.timer);
    run.startedAt = Date.now();
    run.timer = undefined;
    if (run.timeoutMs !== null) run.timer = setTimeout(() => this.#timeOut(run), Math.min(run.timeoutMs, 2 ** 31 - 1));
    this.#starting.push(run);
    this.#startTimer ??= setTimeout(() => this.#reportStarts(), START_HELD_MS);
    this.#on.start(run);
  }

  #reportStarts(): void {
    const before = Date.now() - START_HELD_MS + 5;
    const isDue = (run: Run) => run.isOver || run.startedAt <= before;
    for (const run of this.#starting) {
      if (!run.isOver && isDue(run)) this.#reportStart(run);
    }
    this.#starting = this.#starting.filter((run) => !isDue(run));
    this.#startTimer = this.#starting.length > 0 ? setTimeout(() => this.#reportStarts(), START_HELD_MS) : undefined;
  }

  #reportStart(run: Run): void {
    if (run.isStartReported) return;
    run.isStartReported = true;
    this.#add({ run, isEnd: false, text: run.event("started", { at: new Date(run.startedAt) }) });
  }

  /** Records how the run of a slot ended, and frees the slot. With `afterMs` its end is reported later. */
  end(run: Run, event: string, afterMs?: number): void {
    this.#busy--;
    if (!run.isOver) {
      this.#pace.ended(Date.now() - run.startedAt);
      if (afterMs !== undefined && !this.isDraining) this.#park(run, event, afterMs);
      else this.#over(run, event);
    }
    this.fill();
    this.#on.progressed();
  }

  /** Keeps a run without a slot until its failure is reported. Its own deadline comes first. */
  #park(run: Run, event: string, afterMs: number): void {
    clearTimeout(run.timer);
    this.#parked.set(run, event);
    const left = run.timeoutMs === null ? Infinity : run.startedAt + run.timeoutMs - Date.now() - 50;
    run.timer = setTimeout(() => this.#over(run, event), Math.max(0, Math.min(afterMs, left, 2 ** 31 - 1)));
  }

  #over(run: Run, event: string | undefined): void {
    if (run.isOver) return;
    run.isOver = true;
    this.#parked.delete(run);
    clearTimeout(run.timer);
    this.#live--;
    if (event === undefined) this.#remove([run.executionId]);
    else this.#add({ run, isEnd: true, text: event });
    this.#on.progressed();
  }

  #timeOut(run: Run): void {
    if (run.isOver) return;
    run.stop(new DOMException(`the run took longer than ${run.timeoutMs} ms`, "TimeoutError"));
    this.#over(run, run.event("timedOut"));
  }

  #releaseUntaken(last: Run): void {
    const upTo = this.#waiting.indexOf(last) + 1;
    for (const run of this.#waiting.splice(0, upTo)) this.#over(run, run.event("released"));
    this.fill();
  }

  /** Takes no more runs. Releases those that have not started, which can start elsewhere at once, and reports kept retries. */
  drain(): void {
    this.isDraining = true;
    for (const run of this.#waiting.splice(0)) this.#over(run, run.event("released"));
    for (const [run, event] of this.#parked) this.#over(run, event);
  }

  /** Releases all runs that are not over: other workers run them, and the attempt does not count. */
  releaseAll(reason: Error): void {
    this.#waiting = [];
    for (const run of this.#runs.values()) {
      if (run.isOver) continue;
      run.stop(reason);
      this.#over(run, run.event("released"));
    }
  }

  /** Stops runs that the server has ended. Nothing is reported of them any more. */
  cancel(executions: readonly string[]): void {
    for (const execution of executions) {
      const run = this.#runs.get(execution);
      if (!run || run.isOver) continue;
      run.stop(new DOMException("the run was cancelled, timed out or given to another worker", "AbortError"));
      this.#over(run, undefined);
    }
  }

  /** Sends another end for a run whose own the server does not accept. */
  replaceEnd(run: Run, event: string): void {
    if (this.#runs.has(run.executionId)) this.#add({ run, isEnd: true, isFailure: true, text: event });
  }

  /** Removes runs whose end the server has accepted or rejected. */
  ended(events: readonly OutEvent[]): void {
    const over = events.filter((event) => event.isEnd).map((event) => event.run.executionId);
    if (over.length > 0) this.#remove(over);
  }

  #remove(executions: readonly string[]): void {
    for (const execution of executions) this.#runs.delete(execution);
    this.#on.removed(executions);
  }

  log(run: Run, text: string): void {
    if (run.isOver) return;
    if (!this.outbox.hasRoomForLine) {
      this.#dropped++;
      return;
    }
    this.#reportStart(run);
    this.#add({ run, isEnd: false, text });
  }

  progress(run: Run, text: string): void {
    this.log(run, text);
  }

  /** Returns how many lines were dropped since the last call. */
  takeDropped(): number {
    const dropped = this.#dropped;
    this.#dropped = 0;
    return dropped;
  }

  #add(event: OutEvent): void {
    this.outbox.add(event);
    this.#on.send();
  }
}
