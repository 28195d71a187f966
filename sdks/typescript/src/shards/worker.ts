/**
 * A worker of a sharded service: drives the rules over a ZeroMQ socket. A connection that receives nothing for half of a
 * timeout is replaced, by one to the next address if there are several: only the coordinator that leads listens. The rules
 * alone decide whether the worker is fenced, so that a connection that hangs cannot keep a shard.
 */

import { milliseconds, type Duration } from "../duration.js";
import { ConvokeError, InvalidArguments } from "../errors.js";
import { quietLogger, type Logger } from "../worker/log.js";
import { Rules, type ShardChange } from "./rules.js";

const SHARDS_MAX = 100_000;
const NAME_BYTES_MAX = 255;
const FRAME_BYTES_MAX = 1 << 20;
const LINGER_MS = 1_000;

export interface ShardWorkerOptions {
  /** `tcp://HOST:PORT` of the coordinator, or several, of which one leads. */
  readonly address: string | readonly string[];
  readonly service: string;
  /** Unlike that of any other worker of the service; best the same over restarts. */
  readonly workerId: string;
  /** The number of shards of the whole service. */
  readonly maxShards: number;
  /** Whether the coordinator waits until a change is done before another worker gets a removed shard. Default: false. */
  readonly handoff?: boolean;
  /** Default: a third of the coordinator's timeout. */
  readonly heartbeatInterval?: Duration;
  /** How long `leave` waits. Default: 25 s. */
  readonly leaveGrace?: Duration;
  readonly plain?: { readonly user: string; readonly password: string };
  readonly curve?: { readonly serverKey: string; readonly publicKey: string; readonly secretKey: string };
  /** Default: warnings and errors to the console. */
  readonly logger?: Logger;
}

/** The part of a socket of the package `zeromq` that is used. */
interface Dealer extends AsyncIterable<{ toString(): string }[]> {
  connect(address: string): void;
  send(text: string): Promise<void>;
  close(): void;
}
type DealerClass = new (options: Record<string, unknown>) => Dealer;

/**
 * Holds shards of a service. Needs the package `zeromq`.
 *
 * Write `version` beside what you write for a shard, and reject lower ones: that protects also against a process that was
 * paused. An event loop that is blocked for the coordinator's timeout loses its shards: `owns` is then false.
 */
export class ShardWorker {
  readonly #options: ShardWorkerOptions;
  readonly #addresses: readonly string[];
  readonly #rules: Rules;
  readonly #Dealer: DealerClass;
  readonly #logger: Logger;
  #waiting: (() => void)[] = [];
  #isWoken = false;
  #resume = () => {};
  /** The number of the present iteration over changes; earlier ones are over. */
  #stream = 0;
  #isFollowed = false;
  #isStopped = false;

  /** Loads `zeromq` and begins to register. Does not wait for a coordinator. */
  static async connect(options: ShardWorkerOptions): Promise<ShardWorker> {
    // Not a literal, so that bundlers do not look for a package that may be missing.
    const name = "zeromq";
    const loaded = await (import(name) as Promise<{ Dealer: DealerClass }>).catch((error: Error) => {
      throw new ConvokeError("ShardWorker needs the package zeromq: npm install zeromq", { cause: error });
    });
    return new ShardWorker(options, loaded.Dealer);
  }

  private constructor(options: ShardWorkerOptions, dealer: DealerClass) {
    const { address, service, workerId, maxShards } = options;
    this.#addresses = (typeof address === "string" ? address.split(",") : address).map((each) => each.trim());
    for (const each of this.#addresses) {
      if (!each.startsWith("tcp://")) throw new InvalidArguments("address", `expected tcp://HOST:PORT, got ${JSON.stringify(each)}`);
    }
    for (const [field, value] of Object.entries({ service, workerId })) {
      const bytes = new TextEncoder().encode(value).length;
      if (bytes < 1 || bytes > NAME_BYTES_MAX) throw new InvalidArguments(field, `expected 1 to ${NAME_BYTES_MAX} bytes, got ${bytes}`);
    }
    if (!Number.isInteger(maxShards) || maxShards < 0 || maxShards > SHARDS_MAX) {
      throw new InvalidArguments("maxShards", `expected 0 to ${SHARDS_MAX}, got ${maxShards}`);
    }
    const interval = options.heartbeatInterval;
    const heartbeatIntervalMs = interval === undefined ? undefined : milliseconds(interval, "heartbeatInterval");
    // Heartbeats of a later process have higher numbers: microseconds fit a double until 2255.
    this.#rules = new Rules({ service, workerId, maxShards, handoff: options.handoff ?? false, heartbeatIntervalMs }, Date.now() * 1_000, performance.now());
    [this.#options, this.#Dealer, this.#logger] = [options, dealer, options.logger ?? quietLogger];
    void this.#run();
  }

  /** The shards that it owns now, in order. Empty while it is not certain that it counts as alive. */
  get shards(): readonly number[] {
    return [...this.#rules.shards(performance.now())].sort((a, b) => a - b);
  }

  /** Whether it owns a shard now. Check it before each piece of work. */
  owns(shard: number): boolean {
    return this.#rules.shards(performance.now()).has(shard);
  }

  /** The version of the latest assignment: the fence for writes. */
  get version(): number {
    return this.#rules.version;
  }

  /** Whether a coordinator has replied lately. */
  get isConnected(): boolean {
    return this.#rules.isCertain(performance.now());
  }

  /** Whether another worker has registered under its id. It has then released its shards and stopped. */
  get isReplaced(): boolean {
    return this.#rules.isReplaced;
  }

  /**
   * Yields the changes, one at a time, beginning with all shards that are owned now. A change is done when the next one is
   * requested, or when the iteration ends: stop to work on the removed shards before. There is one iteration: another call
   * ends the previous one. It ends when the worker has left or was replaced. Without one the coordinator does not wait.
   */
  async *changes(): AsyncGenerator<ShardChange, void, undefined> {
    const number = ++this.#stream;
    this.#isFollowed = true;
    this.#rules.startOver();
    this.#tell();
    try {
      while (this.#stream === number) {
        const change = this.#rules.change(performance.now());
        if (change) {
          yield change;
          if (this.#stream === number) this.#rules.acknowledge();
          this.#tell();
        } else if (this.#rules.isGone || this.#isStopped) return;
        else await new Promise<void>((resolve) => this.#waiting.push(resolve));
      }
    } finally {
      if (this.#stream === number) {
        this.#isFollowed = false;
        this.#rules.acknowledge();
        this.#tell();
      }
    }
  }

  /**
   * Leaves the service: a last change removes all shards, and they move when it is done. Waits for that and for the
   * coordinator's confirmation; resolves to false if it took longer than `leaveGrace`. Do not await it in the loop that
   * reads the changes: it would wait for itself.
   */
  async leave(): Promise<boolean> {
    const end = performance.now() + milliseconds(this.#options.leaveGrace ?? 25_000, "leaveGrace");
    this.#rules.leave();
    this.#tell();
    while (!this.#rules.isGone && !this.#isStopped && performance.now() < end) {
      let timer: NodeJS.Timeout | undefined;
      await new Promise<void>((resolve) => {
        timer = setTimeout(resolve, Math.max(0, end - performance.now()));
        this.#waiting.push(resolve);
      });
      clearTimeout(timer);
    }
    this.#isStopped = true;
    this.#tell();
    return this.#rules.isGone;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.leave();
  }

  /** Wakes the loop of the socket, and whoever waits for a change. */
  #tell(): void {
    this.#notify();
    this.#wake();
  }

  #wake(): void {
    this.#isWoken = true;
    this.#resume();
  }

  #notify(): void {
    this.#waiting.splice(0).forEach((resolve) => resolve());
  }

  async #run(): Promise<void> {
    for (let place = 0; ; place++) {
      try {
        if (await this.#converse(this.#addresses[place % this.#addresses.length]!)) break;
      } catch (error) {
        // Such as an address that has no host. The rules go on: a fence does not wait for a connection.
        this.#logger.warn(`connecting to the shard coordinator failed error=${(error as Error).message}`);
        await new Promise((resolve) => setTimeout(resolve, 250));
        this.#step();
        this.#rules.outgoing = [];
        if (this.#isStopped) break;
      }
    }
    this.#isStopped = true;
    this.#notify();
  }

  /** Uses one connection until it is silent. Returns whether the worker is over. */
  async #converse(address: string): Promise<boolean> {
    const { plain, curve } = this.#options;
    const dealer = new this.#Dealer({
      linger: LINGER_MS,
      maxMessageSize: FRAME_BYTES_MAX,
      sendTimeout: 0,
      ...(plain ? { plainUsername: plain.user, plainPassword: plain.password } : {}),
      ...(curve ? { curveServerKey: curve.serverKey, curvePublicKey: curve.publicKey, curveSecretKey: curve.secretKey } : {}),
    });
    let isOpen = true;
    try {
      dealer.connect(address);
      this.#rules.reconnected(performance.now());
      const reading = this.#read(dealer, () => isOpen);
      reading.catch((error: Error) => isOpen && this.#logger.warn(`shard coordinator not read error=${error.message}`));
      for (;;) {
        this.#isWoken = false;
        const deadline = this.#step();
        await this.#sendAll(dealer);
        if (this.#rules.isGone || this.#isStopped) return true;
        if (this.#rules.isSilent(performance.now())) return false;
        await this.#until(deadline);
      }
    } finally {
      isOpen = false;
      dealer.close();
    }
  }

  async #read(dealer: Dealer, isOpen: () => boolean): Promise<void> {
    for await (const [frame] of dealer) {
      if (!isOpen()) return;
      let error: string | undefined;
      try {
        error = this.#rules.receive(frame!.toString(), performance.now());
      } catch (unreadable) {
        error = `unreadable message: ${(unreadable as Error).message}`;
      }
      if (error !== undefined) this.#logger.warn(`rejected by the shard coordinator error=${error}`);
      this.#wake();
    }
  }

  async #sendAll(dealer: Dealer): Promise<void> {
    const messages = this.#rules.outgoing;
    this.#rules.outgoing = [];
    for (const message of messages) {
      // Nobody reads at the other end: the rules send it again.
      await dealer.send(JSON.stringify(message)).catch(() => {});
    }
  }

  /** Lets the rules do what is due. Returns when they are due again. */
  #step(): number {
    const now = performance.now();
    while (!this.#isFollowed && this.#rules.change(now)) this.#rules.acknowledge();
    this.#rules.tick(now);
    this.#notify();
    return this.#rules.nextDeadlineMs(now);
  }

  /** Waits until an instant, or until something happens. */
  async #until(deadlineMs: number): Promise<void> {
    let timer: NodeJS.Timeout | undefined;
    await new Promise<void>((resolve) => {
      timer = setTimeout(resolve, Math.max(1, deadlineMs - performance.now()));
      this.#resume = resolve;
      // Something may have happened while messages were sent.
      if (this.#isWoken) resolve();
    });
    clearTimeout(timer);
  }
}
