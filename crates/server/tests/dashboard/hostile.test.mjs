// Names and texts that contain markup are shown as text on every page: no script of theirs runs, no element of theirs exists.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { expectCalm, navigation, openPage, startBrowser } from './browser.mjs';
import { Server, until } from './server.mjs';

/** Markup that would run in text, in an attribute, in a script, in a style and in a URL, with the place it was put into. */
function hostile(place) {
  return `${place}"'><img src=x onerror=window.hit='${place}'><script>window.hit='${place}'</script>{{7*7}}\${hit}</title>`;
}

const places = ['type', 'queue', 'args', 'error', 'log', 'worker', 'worker-name', 'tag', 'correlation', 'schedule', 'unique', 'result', 'progress', 'reason', 'node', 'service', 'shard-worker'];
const texts = Object.fromEntries(places.map((place) => [place, hostile(place)]));
// A tag has at most 64 bytes.
texts.tag = `tag"'><img src=x onerror=window.hit='tag'>`;

let server;
let browser;
const jobs = {};
before(async () => {
  [server, browser] = await Promise.all([
    Server.start({ name: texts.node, env: { CONVOKE_DASHBOARD__NAME: '<img src=x onerror=window.hit=1>' } }),
    startBrowser(),
  ]);
  const worker = await server.worker(texts.worker, [texts.queue], { name: texts['worker-name'] });
  const spec = {
    type: texts.type, queue: texts.queue, args: { [texts.args]: [texts.args] }, tags: [texts.tag], correlationId: texts.correlation,
    maxRetries: 0,
  };
  const events = [{ kind: 'started' }, { kind: 'progress', percent: 50, message: texts.progress }, { kind: 'log', message: texts.log, level: 'error' }];
  jobs.failed = await server.enqueue(spec);
  await worker.report((await worker.take())[0], ...events, { kind: 'failed', error: texts.error });
  jobs.completed = await server.enqueue(spec);
  await worker.report((await worker.take())[0], ...events, { kind: 'completed', result: { [texts.result]: texts.result } });
  jobs.cancelled = await server.enqueue({ ...spec, delay: '1h' });
  await server.post(`/v1/jobs/${jobs.cancelled}/cancel`, { reason: texts.reason });
  jobs.running = await server.enqueue({ ...spec, uniqueKey: texts.unique });
  await worker.report((await worker.take())[0], ...events);
  await server.call('PUT', `/v1/schedules/${encodeURIComponent(texts.schedule)}`, { ...spec, every: '1h' });
  await server.post(`/v1/schedules/${encodeURIComponent(texts.schedule)}/trigger`);
  server.joinShards(texts.service, texts['shard-worker'], 4);
  await until('the shards are assigned', async () => (await server.get(`/v1/shards/${encodeURIComponent(texts.service)}`)).workers.length === 1);
});
after(async () => {
  await browser?.close();
  await server?.stop();
});

/** Elements and attributes that only the hostile texts would make, and the flag that their scripts set. */
function traces(page) {
  return page.evaluate(() => {
    const images = [...document.querySelectorAll('img, script:not([src]), [onerror]')].map((element) => element.outerHTML.slice(0, 200));
    return window.hit ? [...images, `a script of ${window.hit} ran`] : images;
  });
}

test('hostile texts are shown as text on every page', async () => {
  const page = await openPage(browser);
  await page.goto(`${server.url}/`);
  const [queue, worker, schedule] = ['queue', 'worker', 'schedule'].map((place) => encodeURIComponent(texts[place]));
  const paths = [
    ...(await navigation(page)),
    ...Object.values(jobs).map((id) => `/jobs/${id}`),
    `/jobs?q=${encodeURIComponent(`type:${JSON.stringify(texts.type)}`)}`, `/jobs?q=${encodeURIComponent(hostile('filter'))}`,
    `/jobs/new?copy=${jobs.completed}`, `/shards/${encodeURIComponent(texts.service)}`, `/queues/${queue}`, `/workers/${worker}`, `/schedules/${schedule}`, `/schedules/${schedule}/edit`,
    `/dead-letters?queue=${queue}`, `/jobs?notice=${encodeURIComponent(hostile('notice'))}`, `/queues/${encodeURIComponent(hostile('none'))}`,
    `/workers/${encodeURIComponent(hostile('none'))}`, `/schedules/${encodeURIComponent(hostile('none'))}`,
    `/jobs/${encodeURIComponent(hostile('none'))}`,
  ];
  let seen = '';
  for (const path of paths) {
    await page.goto(server.url + path);
    await page.waitForSelector('main h1', { state: 'attached' });
// Content that a script adds later is text as well: the completion of the filter, the log.
    if (await page.$('input[data-filter]')) {
      await page.fill('input[data-filter]', '');
      await page.type('input[data-filter]', 'queue:');
    }
    assert.deepEqual(await traces(page), [], path);
    seen += await page.evaluate(() => document.documentElement.textContent);
// The page of something that does not exist is a 404 with a message.
    page.problems = page.problems.filter((problem) => !/\b40[04]\b/.test(problem) || !path.includes('none'));
    expectCalm(page, path);
  }
  // Each text is on some page as it was sent; in JSON, with its quotation marks escaped.
  for (const place of places.filter((place) => place !== 'unique')) {
    const shown = [texts[place], JSON.stringify(texts[place]).slice(1, -1)];
    assert.ok(shown.some((text) => seen.includes(text)), `the ${place} is shown nowhere`);
  }
  await page.context().close();
});

test('lines of a log that arrive later are text', async () => {
  const page = await openPage(browser);
  await page.goto(`${server.url}/jobs/${jobs.running}`);
  const run = (await server.get(`/v1/jobs/${jobs.running}`)).executionId;
  const worker = texts.worker;
  const line = hostile('late line');
  const event = { jobId: jobs.running, executionId: run, kind: 'log', message: line };
  await server.post('/v1/worker/report', { workerId: worker, events: [event] });
  await page.waitForFunction((line) => document.getElementById('log').textContent.includes(line), line);
  assert.deepEqual(await traces(page), []);
  expectCalm(page, 'the log');
  await page.context().close();
});
