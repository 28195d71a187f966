// A coordinator of the test's own, its API, and workers that speak the protocol of the gateway.
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = resolve(dirname(fileURLToPath(import.meta.url)), '../../../..');

/** The program under test: CONVOKE_TEST_PROGRAM, or the debug build of this repository. */
export const program = resolve(process.env.CONVOKE_TEST_PROGRAM ?? join(root, 'target/debug/convoke'));

const READY_MS = 60_000;
process.setMaxListeners(100);

/** Waits until `check` returns something, and returns it. */
export async function until(what, check, timeout = 60_000) {
  const end = Date.now() + timeout;
  let last;
  for (;;) {
    try {
      const found = await check();
      if (found) return found;
      last = found;
    } catch (error) {
      last = error;
    }
    if (Date.now() > end) throw new Error(`not within ${timeout / 1000} s: ${what}; last: ${last?.stack ?? last}`);
    await new Promise((done) => setTimeout(done, 50));
  }
}

/** A process that ends with the test. */
export class Process {
  constructor(args, { cwd, env = {} } = {}) {
    this.output = '';
    // Settings of a server on this machine must not reach it.
    const clean = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('CONVOKE_')));
    this.child = spawn(program, args, { cwd, env: { ...clean, ...env }, stdio: ['ignore', 'pipe', 'pipe'] });
    for (const stream of [this.child.stdout, this.child.stderr]) {
      stream.on('data', (data) => {
        this.output = (this.output + data).slice(-200_000);
      });
    }
    this.ended = new Promise((done) => {
      this.child.on('exit', (code, signal) => done(signal ?? code));
      this.child.on('error', (error) => {
        this.output += error.message;
        done('error');
      });
    });
    this.hasEnded = false;
    process.on('exit', () => this.child.kill('SIGKILL'));
    void this.ended.then(() => {
      this.hasEnded = true;
    });
  }

  async stop(signal = 'SIGTERM') {
    if (!this.hasEnded) this.child.kill(signal);
    return this.ended;
  }
}

/** A running `convoke serve`. */
export class Server {
  /** @param {{ args?: string[], env?: Record<string, string>, token?: string, store?: string, name?: string }} options */
  static async start(options = {}) {
    const server = new Server();
    server.options = options;
    server.home = mkdtempSync(join(tmpdir(), 'convoke-dashboard-'));
    server.workers = [];
    await server.run('127.0.0.1:0');
    return server;
  }

  async run(address) {
    const { args = [], env = {}, store = `sqlite:${join(this.home, 'jobs.db')}`, name = 'node-1' } = this.options;
    const flags = ['serve', '--http', address, '--shards', 'tcp://127.0.0.1:0', '--store', store, '--node-id', name];
    this.process = new Process([...flags, ...args], { cwd: this.home, env });
    this.url = await until(
      'the server is ready',
      () => {
        if (this.process.hasEnded) return 'nowhere';
        return /\bapi +(http:\/\/\S+)/.exec(this.process.output)?.[1]?.replace(/\/$/, '');
      },
      READY_MS,
    );
    if (this.url === 'nowhere') throw new Error(`the server has ended: ${this.process.output}`);
    this.address = new URL(this.url).host;
    this.shards = /\bshards +(tcp:\/\/\S+)/.exec(this.process.output)?.[1];
    await until('the node leads', async () => (await fetch(`${this.url}/readyz`)).ok, READY_MS);
  }

  /** Sends a request to the API and returns its response, which must be good. */
  async call(method, path, body, token = this.options.token) {
    const headers = { 'content-type': 'application/json', ...(token ? { authorization: `Bearer ${token}` } : {}) };
    const text = body === undefined ? undefined : JSON.stringify(body);
    const response = await fetch(this.url + path, { method, headers, body: text });
    const answer = await response.text();
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${answer}`);
    return answer.startsWith('{') || answer.startsWith('[') ? JSON.parse(answer) : answer;
  }

  get(path) {
    return this.call('GET', path);
  }

  post(path, body = {}) {
    return this.call('POST', path, body);
  }

  async enqueue(spec) {
    return (await this.post('/v1/jobs', spec)).id;
  }

  async worker(id, queues, settings = {}) {
    const worker = new Worker(this, id);
    await this.post('/v1/worker/register', { workerId: id, name: id, queues, concurrency: 10, ...settings });
    worker.beat();
    return worker;
  }

  /** Starts `convoke worker run`, which ends with the server. */
  runWorker(queue, command, ...flags) {
    const token = this.options.workerToken ?? this.options.token;
    const env = token ? { CONVOKE_TOKEN: token } : {};
    const args = ['worker', 'run', '--server', this.workerUrl ?? this.url, '--queue', queue, '--exec', command, ...flags];
    const worker = new Process(args, { cwd: this.home, env });
    this.workers.push(worker);
    return worker;
  }

  /** Starts a worker of a service with shards, which ends with the server. */
  joinShards(service, id, shards) {
    const args = ['shards', 'join', service, '--worker-id', id, '--shards', `${shards}`, '--coordinator', this.shards];
    const worker = new Process(args, { cwd: this.home });
    this.workers.push(worker);
    return worker;
  }

  /** Starts an instance of a mesh with the handlers `echo` and `sleep`, which ends with the server. */
  joinMesh(name, redis) {
    this.workers.push(new Process(['mesh', 'serve', name, '--redis', redis], { cwd: this.home }));
  }

  async metric(name) {
    const text = await this.get('/metrics');
    const line = text.split('\n').find((line) => line.startsWith(`${name} `) || line.startsWith(`${name}{`));
    if (!line) throw new Error(`there is no metric ${name}`);
    return Number(line.slice(line.lastIndexOf(' ') + 1));
  }

  async stop() {
    await Promise.all(this.workers.map((worker) => worker.stop('SIGKILL')));
    await this.process.stop('SIGKILL');
    rmSync(this.home, { recursive: true, force: true });
  }
}

/** A worker that the test directs, call by call. */
export class Worker {
  constructor(server, id) {
    this.server = server;
    this.id = id;
    this.running = new Set();
  }

  /** Sends heartbeats until the test ends. A server that is stopped for a moment misses some. */
  beat() {
    const send = () => this.server.post('/v1/worker/heartbeat', { workerId: this.id, running: [...this.running] }).catch(() => {});
    setInterval(send, 5000).unref();
  }

  /** Receives runs: exactly `count`, unless it takes too long. */
  async take(count = 1) {
    const runs = [];
    await until(`${count} runs for ${this.id}`, async () => {
      const poll = await this.server.post('/v1/worker/poll', { workerId: this.id, max: count - runs.length, wait: '5s' });
      runs.push(...poll.jobs);
      for (const run of poll.jobs) this.running.add(run.executionId);
      return runs.length >= count;
    });
    return runs;
  }

  /** Reports events of one run. */
  async report(run, ...events) {
    const { jobId, executionId } = run;
    if (events.some(({ kind }) => !['started', 'progress', 'log'].includes(kind))) this.running.delete(executionId);
    const body = { workerId: this.id, events: events.map((event) => ({ jobId, executionId, ...event })) };
    const answer = await this.server.post('/v1/worker/report', body);
    if (answer.rejected.length > 0) throw new Error(`rejected: ${JSON.stringify(answer)}`);
  }
}
