// Measures one peer: node measure.mjs SYSTEM MODULE URL JOBS SINGLES SECONDS
//
// Jobs do nothing and have 100 bytes of JSON. The worker is a process of its own, so that it has a core to itself as far as
// the machine has one. A phase ends when the worker has ended every job and the peer's own tables have none left.
// Latency is counted from the call that enqueues a job, at a fixed rate whether or not earlier calls have returned.
import { fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';

const BATCH = 1_000;
const BATCHES_AT_ONCE = 4;
const SINGLES_AT_ONCE = 64;
const RATE = 200;
const WARM_UP = 50;
const PATIENCE_MS = 180_000;

/** Milliseconds of the monotonic clock, which all processes of a machine share. */
const now = () => Number(process.hrtime.bigint()) / 1e6;
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const payload = (number) => ({ n: String(number).padStart(12, '0'), fill: 'x'.repeat(70) });
const percentile = (sorted, percent) => sorted[Math.max(0, Math.ceil((percent / 100) * sorted.length) - 1)];

/** Calls `act` with 0 to `count - 1`, so many calls at a time. */
async function repeat(count, atOnce, act) {
  let next = 0;
  const caller = async () => {
    while (next < count) await act(next++);
  };
  await Promise.all(Array.from({ length: atOnce }, caller));
}

/** The worker's process: counts, and sends its counts when it is asked. */
async function work(module, url) {
  const counts = { started: 0, ended: 0, first: 0 };
  let starts = [];
  const { worker } = await import(module);
  await worker(url, {
    started(job) {
      const at = now();
      if (counts.started++ === 0) counts.first = at;
      starts.push(Number(job.n), at);
    },
    ended() {
      counts.ended++;
    },
  });
  process.on('message', (wanted) => {
    if (wanted === 'stop') process.exit(0);
    process.send({ ...counts, starts: wanted === 'starts' ? starts : [] });
    starts = [];
  });
  process.on('disconnect', () => process.exit(0));
  process.send('ready');
}

class WorkerProcess {
  static async start(module, url) {
    const child = fork(fileURLToPath(import.meta.url), ['--worker', module, url], { stdio: ['ignore', 'ignore', 'inherit', 'ipc'] });
    const worker = new WorkerProcess();
    worker.child = child;
    child.on('exit', () => (worker.hasEnded = true));
    await worker.reply();
    return worker;
  }

  /** The next message of the worker. */
  reply() {
    return new Promise((resolve, reject) => {
      const gone = () => reject(new Error('the worker ended by itself'));
      this.child.once('exit', gone);
      this.child.once('message', (message) => {
        this.child.off('exit', gone);
        resolve(message);
      });
    });
  }

  ask(what) {
    const reply = this.reply();
    this.child.send(what);
    return reply;
  }

  /** Waits until so many jobs have ended and none is left. */
  async drained(count, producer) {
    const deadline = now() + PATIENCE_MS;
    for (;;) {
      const counts = await this.ask('counts');
      if (counts.ended >= count && (await producer.pending()) === 0) return counts;
      if (now() > deadline) throw new Error(`only ${counts.ended} of ${count} jobs ended`);
      await sleep(5);
    }
  }

  async stop() {
    if (this.hasEnded) return;
    this.child.send('stop');
    await new Promise((resolve) => this.child.once('exit', resolve));
  }
}

async function enqueueInBatches(producer, count) {
  const batch = (number) =>
    Array.from({ length: Math.min(BATCH, count - number * BATCH) }, (_, place) => payload(number * BATCH + place));
  await repeat(Math.ceil(count / BATCH), BATCHES_AT_ONCE, (number) => producer.batch(batch(number)));
}

async function latency(producer, worker, seconds) {
  const count = WARM_UP + seconds * RATE;
  await sleep(1_000);
  await worker.ask('starts');
  const calls = new Float64Array(count);
  const pending = [];
  const began = now();
  for (let number = 0; number < count; number++) {
    const wait = began + (number * 1_000) / RATE - now();
    if (wait > 0) await sleep(wait);
    calls[number] = now();
    pending.push(producer.single(payload(number)));
  }
  await Promise.all(pending);
  const times = [];
  const deadline = now() + PATIENCE_MS;
  while (times.length < count && now() < deadline) {
    await sleep(50);
    const { starts } = await worker.ask('starts');
    for (let place = 0; place < starts.length; place += 2) {
      times.push({ number: starts[place], took: starts[place + 1] - calls[starts[place]] });
    }
  }
  if (times.length < count) throw new Error(`only ${times.length} of ${count} jobs started`);
  return times.filter((time) => time.number >= WARM_UP).map((time) => time.took).sort((a, b) => a - b);
}

async function measure(system, module, url, jobs, singles, seconds) {
  const { producer: connect } = await import(module);
  const producer = await connect(url);
  const perSecond = (count, began, ended) => Math.round((count * 1_000) / (ended - began));

  let began = now();
  await enqueueInBatches(producer, jobs);
  const batchPerSecond = perSecond(jobs, began, now());

  let worker = await WorkerProcess.start(module, url);
  const drained = await worker.drained(jobs, producer);
  // From the first start: how long a runtime takes to begin is not measured.
  const drainPerSecond = perSecond(jobs, drained.first, now());
  await worker.stop();

  began = now();
  await repeat(singles, SINGLES_AT_ONCE, (number) => producer.single(payload(number)));
  const singlePerSecond = perSecond(singles, began, now());
  worker = await WorkerProcess.start(module, url);
  await worker.drained(singles, producer);

  began = now();
  await enqueueInBatches(producer, jobs);
  await worker.drained(singles + jobs, producer);
  const endToEndPerSecond = perSecond(jobs, began, now());

  const times = await latency(producer, worker, seconds);
  await worker.stop();
  await producer.close();
  const [startP50Ms, startP99Ms] = [50, 99].map((percent) => Number(percentile(times, percent).toFixed(2)));
  const figures = { batchPerSecond, drainPerSecond, endToEndPerSecond, singlePerSecond, startP50Ms, startP99Ms };
  console.log(JSON.stringify({ system, ...figures }));
}

const [first, ...rest] = process.argv.slice(2);
try {
  if (first === '--worker') {
    await work(...rest);
  } else {
    const [module, url, jobs, singles, seconds] = rest;
    await measure(first, module, url, Number(jobs), Number(singles), Number(seconds));
    process.exit(0);
  }
} catch (error) {
  console.error(error);
  process.exit(1);
}
