// Many events: the page goes on, and the server's memory is bounded. Times are printed and not asserted.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { expectCalm, openPage, startBrowser } from './browser.mjs';
import { Server } from './server.mjs';

const FULL = process.env.CONVOKE_TEST_SCALE === 'full';
const LOAD_MS = FULL ? 20_000 : 6_000;
const BATCH = 2_000;
// More than a page gets that receives events only after the load: one when its stream opens, and some by chance.
const REFRESHES = 5;
// A server with a SQLite file keeps no ended job in memory. The events that every stream missed would take more than this in a few seconds.
const MEMORY_MAX = 2 ** 29;

let server;
let browser;
before(async () => {
  [server, browser] = await Promise.all([Server.start(), startBrowser()]);
});
after(async () => {
  await browser?.close();
  await server?.stop();
});

/** A worker that ends each run as soon as it has it, until it is stopped. */
async function work(worker, state) {
  while (!state.isOver) {
    const { jobs } = await server.post('/v1/worker/poll', { workerId: worker.id, max: 5_000, wait: '1s' });
    const events = jobs.map(({ jobId, executionId }) => ({ jobId, executionId, kind: 'completed', result: null }));
    if (events.length > 0) await server.post('/v1/worker/report', { workerId: worker.id, events });
    state.ended += events.length;
  }
}

/** Counts the events of a stream until the load is over. */
async function countEvents(state) {
  const response = await fetch(`${server.url}/v1/events`, { signal: state.abort.signal });
  for await (const chunk of response.body) {
    if (state.isOver) return;
    const text = Buffer.from(chunk).toString();
    state.events += text.split('\nevent: ').length - 1 + (text.startsWith('event: ') ? 1 : 0);
    for (const [, missed] of text.matchAll(/"missed":(\d+)/g)) state.events += Number(missed);
  }
}

/** Opens a stream and reads nothing of it until the load is over: returns how many missed events it then reports. */
async function missEvents(state) {
  const response = await fetch(`${server.url}/v1/events`, { signal: state.abort.signal });
  await state.over;
  let text = '';
  for await (const chunk of response.body) {
    text = text.slice(-1_000) + Buffer.from(chunk).toString();
    const lagged = /event: lagged\ndata: \{"missed":(\d+)/.exec(text);
    if (lagged) return Number(lagged[1]);
  }
  return 0;
}

test('pages go on updating under many events, and the memory of the server is bounded', async () => {
  const paths = ['/', '/jobs', '/queues'];
  const pages = [];
  for (const path of paths) {
    // A tab that is hidden holds no stream: each page has a window of its own.
    const page = await openPage(browser);
    await page.addInitScript(() => {
      window.longest = 0;
      window.refreshes = 0;
      new PerformanceObserver((list) => {
        for (const entry of list.getEntries()) window.longest = Math.max(window.longest, entry.duration);
      }).observe({ type: 'longtask', buffered: true });
      document.addEventListener('convoke:refreshed', () => window.refreshes++);
    });
    await page.goto(server.url + path);
    // Long tasks are seen: this one, and from here on those of the page.
    await page.evaluate(() => {
      setTimeout(() => {
        const end = performance.now() + 100;
        while (performance.now() < end);
      }, 0);
    });
    await page.waitForFunction(() => window.longest >= 100);
    await page.evaluate(() => {
      window.longest = 0;
    });
    pages.push(page);
  }

  const state = { isOver: false, ended: 0, events: 0, abort: new AbortController() };
  let over;
  state.over = new Promise((done) => {
    over = done;
  });
  const worker = await server.worker('fast', ['load'], { concurrency: 20_000 });
  const missed = missEvents(state);
  const counting = countEvents(state).catch(() => {});
  const working = [work(worker, state), work(worker, state)];
  const started = Date.now();
  let enqueued = 0;
  let memory = 0;
  const refreshes = () => Promise.all(pages.map((page) => page.evaluate(() => window.refreshes)));
  let duringLoad = await refreshes();
  // A slow machine gets more time, as long as the load lasts.
  const isEnough = () => Date.now() - started > LOAD_MS && duringLoad.every((count) => count >= REFRESHES);
  while (!isEnough() && Date.now() - started < 4 * LOAD_MS) {
    await server.post('/v1/jobs/batch', { jobs: Array.from({ length: BATCH }, () => ({ type: 'load', queue: 'load' })) });
    enqueued += BATCH;
    memory = Math.max(memory, await server.metric('process_resident_memory_bytes'));
    duringLoad = await refreshes();
  }
  const seconds = (Date.now() - started) / 1000;
  state.isOver = true;
  over();
  await Promise.all(working);

  // After the load a page shows a new job.
  const last = await server.enqueue({ type: 'last', queue: 'nobody' });
  await pages[1].waitForSelector(`tr[data-key="${last}"]`, { state: 'attached' });
  memory = Math.max(memory, await server.metric('process_resident_memory_bytes'));

  const missedEvents = await missed;
  state.abort.abort();
  await counting;
  console.log(`${enqueued} jobs enqueued and ${state.ended} ended in ${seconds.toFixed(1)} s: ${Math.round(state.events / seconds)} events a second`);
  console.log(`memory of the server at most ${Math.round(memory / 2 ** 20)} MiB`);
  for (const [at, page] of pages.entries()) {
    const longest = await page.evaluate(() => window.longest);
    console.log(`${paths[at]}: ${duringLoad[at]} refreshes under load, longest task ${Math.round(longest)} ms`);
    assert.ok(duringLoad[at] >= REFRESHES, `${paths[at]} was refreshed ${duringLoad[at]} times under load`);
    expectCalm(page, paths[at]);
  }
  assert.ok(enqueued > 0 && state.ended > 0);
  assert.ok(memory < MEMORY_MAX, `${memory} bytes`);
  // The server does not keep the events of a stream that nobody reads: the stream goes on with the number of those it missed.
  assert.ok(missedEvents > 0, 'a stream that nobody read missed nothing');
});
