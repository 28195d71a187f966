/**
 * The worker's side of the protocol of shards: a state machine without a clock or a socket.
 *
 * It registers, sends heartbeats, and holds its shards as long as it is certain that the coordinator considers it alive. A
 * reply to a heartbeat that was sent at `t` gives certainty until `t + timeout - margin`, because the coordinator received
 * it no earlier than `t`. Without certainty it has no shards: it has fenced itself before another worker can get them.
 *
 * The application receives each change of its shards, one at a time, and acknowledges it once it has stopped to work on the
 * removed ones. Until then those shards are still held: they are reported, and `released` is not sent.
 */

import { milliseconds } from "../duration.js";

/** The timeout of the protocol, until a coordinator sends another. */
const HEARTBEAT_TIMEOUT_MS = 15_000;
/** How often it sends while it has no certainty. */
const TRY_INTERVAL_MAX_MS = 1_000;
/** Upper bound of the heartbeats that wait for a reply. */
const BEATS_MAX = 64;
/** Each term of a coordinator has this many versions of its own. */
const VERSIONS_OF_A_TERM = 2 ** 22;

/** A change of the shards that the application may work on. */
export interface ShardChange {
  readonly added: readonly number[];
  /** Stop to work on these before the next change is requested. */
  readonly removed: readonly number[];
  readonly shards: readonly number[];
  /** The fence of `shards`. */
  readonly version: number;
}

export interface Profile {
  readonly service: string;
  readonly workerId: string;
  readonly maxShards: number;
  readonly handoff: boolean;
  readonly heartbeatIntervalMs: number | undefined;
}

export interface Message {
  readonly type: string;
  readonly data: Readonly<Record<string, unknown>>;
}

type Stage =
  | "working"
  /** It releases its shards before it leaves. */
  | "leaving"
  /** It holds nothing, and sends `leave` until that is confirmed. */
  | "sendingLeave"
  /** Another process has its id: it stops its work, and sends nothing. */
  | "replaced"
  | "gone";

const NONE: ReadonlySet<number> = new Set();
const without = (all: Iterable<number>, others: ReadonlySet<number>) => new Set([...all].filter((shard) => !others.has(shard)));
const sorted = (shards: Iterable<number>) => [...shards].sort((a, b) => a - b);

export class Rules {
  readonly #profile: Profile;
  readonly #instance: number;
  #timeoutMs = HEARTBEAT_TIMEOUT_MS;
  /** The highest version ever seen: a new coordinator begins above it. */
  #seen = 0;
  #assigned = NONE;
  #certainUntilMs = -Infinity;
  /** Numbers and times of heartbeats without a reply. */
  #beats: (readonly [beat: number, sentMs: number])[] = [];
  #nextBeat: number;
  #nextSendMs: number;
  #lastReceivedMs: number;
  #versionReceivedMs: number;
  /** The shards in the last change for the application. */
  #reported = NONE;
  /** The shards that the last change removed, until it is acknowledged. */
  #releasing: ReadonlySet<number> | undefined;
  /** Recently released shards, each with the number of the first heartbeat that no longer lists them. */
  #released: (readonly [beat: number, shards: ReadonlySet<number>])[] = [];
  #stage: Stage = "working";
  /** The version of the latest assignment. */
  version = 0;
  isReplaced = false;
  /** Messages to send, in order. */
  outgoing: Message[] = [];

  /** `firstBeat` should be higher in every later process of a worker, as the time is. */
  constructor(profile: Profile, firstBeat: number, nowMs: number) {
    this.#profile = profile;
    this.#instance = this.#nextBeat = firstBeat;
    this.#nextSendMs = this.#lastReceivedMs = this.#versionReceivedMs = nowMs;
  }

  /** The shards that it may work on: none without certainty. */
  shards(nowMs: number): ReadonlySet<number> {
    return this.#stage === "working" && this.isCertain(nowMs) ? this.#assigned : NONE;
  }

  /** Whether it is certain that the coordinator considers it alive. */
  isCertain(nowMs: number): boolean {
    return nowMs < this.#certainUntilMs;
  }

  /** Whether no reply came for half of the timeout: a new connection may reach a coordinator. */
  isSilent(nowMs: number): boolean {
    return nowMs >= this.#silentAtMs();
  }

  /** Whether it has left or was replaced, and holds nothing. */
  get isGone(): boolean {
    return this.#stage === "gone";
  }

  /** When `tick` has something to do, or certainty ends. */
  nextDeadlineMs(nowMs: number): number {
    const next = Math.min(this.#nextSendMs, this.#silentAtMs());
    return this.#certainUntilMs > nowMs ? Math.min(this.#certainUntilMs, next) : next;
  }

  /** Handles a new connection: the last messages on the old one may be lost. */
  reconnected(nowMs: number): void {
    this.#nextSendMs = this.#lastReceivedMs = nowMs;
  }

  /** Adds the messages that are due. */
  tick(nowMs: number): void {
    if (this.#stage === "leaving" && this.#holdsNothing) [this.#stage, this.#nextSendMs] = ["sendingLeave", nowMs];
    if (this.#stage === "replaced" && this.#holdsNothing) this.#stage = "gone";
    if (nowMs < this.#nextSendMs || this.#stage === "replaced" || this.#stage === "gone") return;
    const isCertain = this.isCertain(nowMs);
    const isSteady = isCertain && this.#stage !== "sendingLeave";
    const interval = isSteady ? this.#intervalMs() : Math.min(this.#intervalMs(), TRY_INTERVAL_MAX_MS);
    // Shortened at random, so that workers that reconnected together do not send in step.
    this.#nextSendMs = nowMs + interval * (0.85 + 0.15 * Math.random());
    if (this.#stage === "sendingLeave") this.#send("leave", { version: this.version, beat: this.#nextBeat++ });
    else this.#report(isCertain ? "heartbeat" : "register", nowMs);
  }

  /** Handles a message of the coordinator. Returns the text of an error that it sent; throws if it cannot be read. */
  receive(text: string, nowMs: number): string | undefined {
    const { type, data } = JSON.parse(text) as { type: string; data: Record<string, unknown> };
    if (this.isReplaced) return undefined;
    if (type === "assignment") this.#takeAssignment(data, nowMs);
    else if (type === "revoke") this.#takeRevocation(new Set(data["shards"] as number[]), Number(data["version"]), nowMs);
    else if (type === "error") {
      if (data["code"] === "replaced") this.#giveUp();
      this.#lastReceivedMs = nowMs;
      return `${String(data["code"])}: ${String(data["message"])}`;
    }
    return undefined;
  }

  #giveUp(): void {
    this.isReplaced = true;
    [this.#assigned, this.#certainUntilMs] = [NONE, -Infinity];
    if (this.#stage !== "gone") this.#stage = "replaced";
  }

  #takeAssignment(data: Record<string, unknown>, nowMs: number): void {
    const assigned = new Set(data["assignedShards"] as number[]);
    const version = Number(data["version"] ?? 0);
    if (this.#isOutdated(version, nowMs)) return;
    this.#lastReceivedMs = nowMs;
    const term = (each: number) => Math.floor(each / VERSIONS_OF_A_TERM);
    const isOfSuccessor = this.version !== 0 && term(version) !== term(this.version);
    this.#recordVersion(version, nowMs);
    if (typeof data["heartbeatTimeout"] === "string") {
      this.#timeoutMs = milliseconds(data["heartbeatTimeout"], "heartbeatTimeout") || this.#timeoutMs;
    }
    this.#assigned = assigned;
    const beat = data["beat"] as number | null | undefined;
    if (beat === undefined || beat === null) this.#takeUnrequested(nowMs);
    else {
      // It replies to a report of shards that are released by now: a new coordinator may take them for held.
      for (const [first, shards] of this.#released) if (first > beat) this.#assigned = without(this.#assigned, shards);
      this.#confirm(beat);
    }
    this.#nextSendMs = Math.min(this.#nextSendMs, nowMs + this.#intervalMs());
    // A new coordinator waits for a report that is later than all grants of its predecessor.
    if (isOfSuccessor) this.#nextSendMs = nowMs;
  }

  #takeUnrequested(nowMs: number): void {
    if (this.#stage !== "sendingLeave") return;
    // A grant was sent before the leave was received: send it again, with that version.
    if (this.#assigned.size > 0) this.#nextSendMs = nowMs;
    else this.#stage = "gone";
  }

  #takeRevocation(shards: ReadonlySet<number>, version: number, nowMs: number): void {
    if (this.#isOutdated(version, nowMs)) return;
    this.#lastReceivedMs = nowMs;
    this.#recordVersion(version, nowMs);
    this.#assigned = without(this.#assigned, shards);
    this.#release(without(without(shards, this.#reported), this.#releasing ?? NONE));
  }

  /**
   * Whether a message is of a former coordinator, or overtaken by a later one. If nothing else was received for a whole
   * timeout, and no shard is held, the coordinator has begun again with lower versions.
   */
  #isOutdated(version: number, nowMs: number): boolean {
    const beginsAnew = this.#holdsNothing && nowMs >= this.#versionReceivedMs + this.#timeoutMs;
    return !(version >= this.version) && !beginsAnew;
  }

  #recordVersion(version: number, nowMs: number): void {
    [this.version, this.#versionReceivedMs] = [version, nowMs];
    this.#seen = Math.max(this.#seen, version);
  }

  #confirm(beat: number): void {
    const sent = this.#beats.find(([number]) => number === beat);
    if (!sent) return;
    this.#beats = this.#beats.filter(([number]) => number > beat);
    this.#released = this.#released.filter(([first]) => first > beat);
    // A tenth is left for clock drift, and for the application to stop.
    this.#certainUntilMs = Math.max(this.#certainUntilMs, sent[1] + this.#timeoutMs * 0.9);
  }

  /** Returns the next change; `undefined` if there is none, or the last one is not acknowledged. */
  change(nowMs: number): ShardChange | undefined {
    if (this.#releasing) return undefined;
    const shards = this.shards(nowMs);
    const [added, removed] = [without(shards, this.#reported), without(this.#reported, shards)];
    if (added.size === 0 && removed.size === 0) return undefined;
    [this.#reported, this.#releasing] = [shards, removed];
    return { added: sorted(added), removed: sorted(removed), shards: sorted(shards), version: this.version };
  }

  /** Records that the application has applied the last change. */
  acknowledge(): void {
    const released = this.#releasing ?? NONE;
    this.#releasing = undefined;
    if (released.size > 0) this.#released = [...this.#released, [this.#nextBeat, released] as const].slice(-BEATS_MAX);
    this.#release(released);
  }

  /** Records that the application works on no shard, and repeats all of them in the next change. */
  startOver(): void {
    this.acknowledge();
    [this.#releasing, this.#reported] = [this.#reported, NONE];
    this.acknowledge();
  }

  /** Leaves: releases everything, then sends `leave`. */
  leave(): void {
    if (this.#stage === "working") this.#stage = "leaving";
  }

  #release(shards: ReadonlySet<number>): void {
    // A replaced worker is not waited for: its shards are granted to another under a later version.
    if (!this.#profile.handoff || shards.size === 0 || this.isReplaced) return;
    this.#send("released", { shards: sorted(shards), version: this.version });
  }

  get #holdsNothing(): boolean {
    return this.#reported.size === 0 && this.#releasing === undefined;
  }

  #report(type: string, nowMs: number): void {
    const beat = this.#nextBeat++;
    this.#beats = [...this.#beats, [beat, nowMs] as const].slice(-BEATS_MAX);
    const { maxShards: maxShardCount, handoff } = this.#profile;
    // Also those that the application still has to stop to work on.
    const assignedShards = sorted(new Set([...this.#reported, ...(this.#releasing ?? [])]));
    const version = this.#seen > 0 ? { version: this.#seen } : {};
    this.#send(type, { maxShardCount, assignedShards, handoff, beat, instance: this.#instance, ...version });
  }

  #send(type: string, data: Record<string, unknown>): void {
    const { service: serviceName, workerId } = this.#profile;
    this.outgoing.push({ type, data: { serviceName, workerId, ...data } });
  }

  #intervalMs(): number {
    return Math.max(1, this.#profile.heartbeatIntervalMs ?? this.#timeoutMs / 3);
  }

  #silentAtMs(): number {
    return this.#lastReceivedMs + Math.max(this.#timeoutMs / 2, this.#intervalMs() * 2);
  }
}
